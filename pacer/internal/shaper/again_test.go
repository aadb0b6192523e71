package shaper

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A piece that goes again says so: its place in the order of its queue pair is another
// one than it had, so that a fence holds for it anew.
func TestPiecesThatGoAgainSaySo(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib}, FlowConfig{})
	b.get(0, 2*kib, fenced)
	first, _ := b.next()
	require.False(t, first.Again)
	require.True(t, b.s.Failed(first.Sub, true))
	again, _ := b.next()
	require.True(t, again.Again)
	require.False(t, again.First)
	require.Equal(t, first.Offset, again.Offset)
	second, _ := b.next()
	require.False(t, second.Again)
}

// Pieces that failed go again in the order of their requests, whatever their places are:
// a fence holds between requests, and completions come in that order.
func TestPiecesGoAgainInOrder(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib}, FlowConfig{})
	b.get(0, 3*kib)
	var gs []Grant
	for range 3 {
		g, ok := b.next()
		require.True(t, ok)
		gs = append(gs, g)
	}
	b.done(gs[0]) // its place is the first to be used again, then the second one's
	b.done(gs[1])
	first := b.get(0, 2*kib)
	second := b.get(0, 2*kib, fenced)
	type piece struct {
		r      Request
		offset int
	}
	want := []piece{{gs[2].Request, 2 * kib}, {first, 0}, {first, kib}, {second, 0}, {second, kib}}
	for _, w := range want[1:] {
		g, ok := b.next()
		require.True(t, ok)
		require.Equal(t, w, piece{g.Request, g.Offset})
	}
	b.s.Down(b.flows[0])
	b.s.FailAll(b.flows[0], true)
	b.s.Up(b.flows[0])
	gs = gs[:0]
	for _, w := range want {
		g, ok := b.next()
		require.True(t, ok)
		require.Equal(t, w, piece{g.Request, g.Offset})
		require.True(t, g.Again)
		gs = append(gs, g)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 { // they fail in any order
		b.s.Down(b.flows[0])
		for _, i := range rng.Perm(len(gs)) {
			require.True(t, b.s.Failed(gs[i].Sub, true))
		}
		b.s.Up(b.flows[0])
		for i, w := range want {
			g, ok := b.next()
			require.True(t, ok)
			require.Equal(t, w, piece{g.Request, g.Offset})
			gs[i] = g
		}
	}
}

// A queue pair with a dead peer does not keep its credit from others for ever: what is
// overdue counts no more, until something comes.
func TestOverdueResponses(t *testing.T) {
	const ms = time.Millisecond
	b := newBench(t, Config{MTU: 4 * kib, Slice: 4 * kib, Threshold: 9 * kib, Reserve: 1, Small: 1, Overdue: 100 * ms, Classes: []Class{{Cap: 9 * kib}}}, FlowConfig{}, FlowConfig{})
	b.get(0, 64*kib)
	first, _ := b.next()
	second, ok := b.next()
	require.True(t, ok)
	dead := b.get(1, 64*kib)
	wait := func() {
		t.Helper()
		_, ok := b.next()
		require.False(t, ok)
		at, ok := b.s.Wake()
		require.True(t, ok)
		require.LessOrEqual(t, at, b.now+100*ms)
	}
	wait()
	b.now = 60 * ms
	b.done(first) // it lives: the other one is expected for another 100 ms
	third, _ := b.next()
	require.Equal(t, b.flows[0], third.Flow)
	b.now = 150 * ms
	wait()
	b.now = 220 * ms
	for range 5 {
		g, ok := b.next()
		require.True(t, ok)
		require.Equal(t, b.flows[1], g.Flow)
		require.LessOrEqual(t, b.s.Outstanding(), int64(4*4*(kib+1)))
		b.done(g)
	}
	require.EqualValues(t, 2, b.s.Stats().Overdue)
	_, _ = b.next()
	_, _ = b.next()
	_, ok = b.next()
	require.False(t, ok, "no more than the threshold again")
	require.Equal(t, ClassCap, b.explain(dead))
	require.Equal(t, Stalled, b.s.Explain(second.Request, b.now))
	b.now += ms
	b.done(second) // it was not dead
	require.EqualValues(t, 0, b.s.lent)
	_, ok = b.next()
	require.False(t, ok, "its other one counts again")
	b.done(third)
}

// When the link stands still, one flow after the other asks for one more response, and
// a flow that keeps credit for long by design is not overdue.
func TestLinkThatStandsStill(t *testing.T) {
	const flows = 8
	b := newBench(t, Config{MTU: 4 * kib, Slice: 4 * kib, Threshold: 9 * kib, Reserve: 1, Small: 1}, make([]FlowConfig, flows)...)
	for f := range flows {
		b.get(f, 64*kib)
	}
	var under []Grant
	for b.now = 0; b.now < 10*time.Second; b.now += 10 * time.Millisecond {
		for g, ok := b.next(); ok; g, ok = b.next() {
			under = append(under, g)
		}
	}
	require.LessOrEqual(t, len(under), 2*flows)
	for _, g := range under { // it goes on
		b.done(g)
	}
	require.Zero(t, b.s.lent)
	require.Len(t, b.order(20), 20)

	// Much takes long.
	m := newBench(t, Config{Threshold: 1 << 30, Slice: -1}, FlowConfig{})
	m.get(0, 1<<20)
	m.get(0, 8*kib)
	_, _ = m.next()
	_, _ = m.next()
	m.now = 3 * time.Second
	m.get(0, 8*kib)
	_, ok := m.next()
	require.True(t, ok)
	m.now = 4 * time.Second
	m.get(0, 8*kib)
	_, ok = m.next()
	require.False(t, ok)

	p := newBench(t, Config{Threshold: 9 * kib, Slice: -1}, FlowConfig{Patient: true}, FlowConfig{Patient: true})
	p.get(0, 8*kib)
	p.get(1, 8*kib)
	_, ok = p.next()
	require.True(t, ok)
	p.now = time.Hour
	_, ok = p.next()
	require.False(t, ok)
	n := newBench(t, Config{Threshold: 5 * kib, MTU: 4 * kib, Slice: 4 * kib, Overdue: -1}, FlowConfig{}, FlowConfig{})
	n.get(0, 8*kib)
	n.get(1, 8*kib)
	_, ok = n.next()
	require.True(t, ok)
	n.now = time.Hour
	_, ok = n.next()
	require.False(t, ok)
}

// A request of which one piece failed for good is over: another one that was to go again
// does not.
func TestBrokenRequestsDoNotGoAgain(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib}, FlowConfig{})
	r := b.get(0, 2*kib)
	first, _ := b.next()
	second, _ := b.next()
	require.True(t, b.s.Failed(first.Sub, true))
	require.True(t, b.s.Failed(second.Sub, false))
	_, ok := b.next()
	require.False(t, ok)
	got, _, complete, ok := b.s.Finished()
	require.True(t, ok)
	require.Equal(t, r, got)
	require.False(t, complete)

	b.get(0, 2*kib) // nor does one that fails later
	out := b.all()
	require.Len(t, out, 2)
	require.True(t, b.s.Failed(out[0].Sub, false))
	require.True(t, b.s.Failed(out[1].Sub, true))
	require.Empty(t, b.all())
	require.True(t, b.s.Ended())
}

// What is overdue is looked for twice in that time, while anything is. Of those that are, one that is heard of is
// expected again, and no other.
func TestOverdueIsLookedForAndHeard(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 1 << 20, Overdue: 100 * msec, Ord: 2}, FlowConfig{}, FlowConfig{})
	for f := range 2 {
		b.get(f, 8*kib)
	}
	out := b.all()
	require.Len(t, out, 4)
	for _, c := range []struct {
		now, wake time.Duration
		overdue   uint64
	}{{60 * msec, 110 * msec, 0}, {105 * msec, 110 * msec, 0}, {110 * msec, 0, 4}, {time.Second, 0, 4}} {
		b.now = c.now
		require.Empty(t, b.all())
		require.Equal(t, c.overdue, b.s.Stats().Overdue)
		at, ok := b.s.Wake()
		require.Equal(t, c.wake, at)
		require.Equal(t, c.wake != 0, ok)
	}
	b.done(out[0])
	require.Equal(t, []int{0, 2}, []int{b.s.flows[b.place(out[0].Flow)].lent, b.s.flows[1-b.place(out[0].Flow)].lent})
	require.Equal(t, b.s.Outstanding()/3*2, b.s.lent)
}
