package shaper

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lengths and limits at the ends of their types neither overflow nor make credit.
func TestLargestValues(t *testing.T) {
	b := newBench(t, Config{Threshold: 8 * kib, Slice: -1}, FlowConfig{}, FlowConfig{})
	for _, n := range []int{math.MaxInt, math.MaxInt - 4095, 1 << 62, MaxLength + 1} {
		for _, k := range []Kind{Get, Put} {
			_, err := b.s.Submit(b.flows[0], Command{Kind: k, Length: n}, 0)
			require.ErrorIs(t, err, ErrConfig, "%d", n)
		}
	}
	b.get(0, MaxLength)
	g, ok := b.next()
	require.True(t, ok, "alone")
	require.Greater(t, b.s.Outstanding(), int64(MaxLength))
	b.get(1, 4*kib)
	_, ok = b.next()
	require.False(t, ok)
	b.done(g)
	require.Equal(t, []int{1}, b.order(1))
	for _, c := range []Config{{Slice: math.MaxInt}, {Slice: math.MinInt}, {MTU: maxBytes}, {MTU: math.MaxInt, Slice: math.MaxInt}, {Header: maxBytes}, {Header: 1<<16 + 1}} {
		s, err := New(c)
		if err == nil {
			f, err := s.AddFlow(FlowConfig{})
			require.NoError(t, err)
			_, err = s.Submit(f, Command{Length: MaxLength}, 0)
			require.NoError(t, err)
			_, ok := s.Next(0)
			require.True(t, ok)
			require.Positive(t, s.Threshold(), "%+v", c)
			require.LessOrEqual(t, s.Config().Slice, MaxLength)
			require.GreaterOrEqual(t, s.Outstanding(), int64(MaxLength), "%+v", c)
			continue
		}
		require.ErrorIs(t, err, ErrConfig)
	}
}

// Commands of no kind, of no class, or without a length that makes sense are refused.
func TestCommandsThatAreRefused(t *testing.T) {
	b := newBench(t, Config{Classes: make([]Class, 2)}, FlowConfig{})
	for _, c := range []Command{{Kind: Put + 1}, {Class: 2}, {Class: -1}, {Length: -1}, {Length: MaxLength + 1}} {
		_, err := b.s.Submit(b.flows[0], c, 0)
		require.ErrorIs(t, err, ErrConfig, "%+v", c)
		_, _, _, err = b.s.Admit(b.flows[0], c, 0)
		require.ErrorIs(t, err, ErrConfig, "%+v", c)
	}
	require.Zero(t, b.s.Stats().Alive)
	require.False(t, b.s.Held())
	for _, c := range []Command{{Kind: Put}, {Class: 1}, {}, {Length: MaxLength}} {
		_, err := b.s.Submit(b.flows[0], c, 0)
		require.NoError(t, err, "%+v", c)
	}
	require.Equal(t, 4, b.s.Stats().Alive)
	require.True(t, b.s.Held())
}

// What the threshold leaves for a response, large or small, when so many bytes are outstanding.
func TestWhatTheThresholdLeaves(t *testing.T) {
	for i, c := range []struct {
		large, small, wire int64
		isSmall, due, held bool
	}{
		{large: 500, wire: 400},
		{large: 500, wire: 401, held: true},
		{large: 500, small: 100, wire: 300},
		{large: 500, small: 100, wire: 301, held: true},
		{small: 100, wire: 900},
		{small: 101, wire: 900, held: true},
		{small: 1000, wire: 901},
		{wire: 5000},
		{large: 1, wire: 900, held: true},
		{large: 990, wire: 10, isSmall: true},
		{large: 1000, wire: 100, isSmall: true},
		{large: 1000, wire: 5000, isSmall: true},
		{large: 950, small: 50, wire: 50, isSmall: true},
		{large: 950, small: 50, wire: 51, isSmall: true, held: true},
		{large: 100, small: 50, wire: 50, isSmall: true, due: true},
		{large: 100, small: 50, wire: 51, isSmall: true, due: true, held: true},
		{large: 100, small: 50, wire: 51, isSmall: true},
	} {
		b := newBench(t, Config{Threshold: 1000, Reserve: 100}, FlowConfig{})
		b.s.outstanding, b.s.small = c.large+c.small, c.small
		if c.due {
			b.s.due = 0
		}
		require.Equal(t, c.held, b.s.exceeds(c.wire, c.isSmall) == Threshold, i)
		require.Equal(t, c.held && !c.isSmall, b.s.tune.filled, i)
	}
}

// A rate at which a request would take centuries holds it, and does not have the
// driver look again at once.
func TestSlowestRate(t *testing.T) {
	for _, rate := range []float64{1e-9, 1e-300, math.SmallestNonzeroFloat64} {
		for _, c := range []Config{{Rate: rate, Reserve: 1, Small: 1}, {Outbound: rate}} {
			b := newBench(t, c, FlowConfig{})
			for range 40 {
				b.get(0, 16*kib, kind(map[bool]Kind{true: Get, false: Put}[c.Rate > 0]))
			}
			b.now = time.Hour
			for g, ok := b.next(); ok; g, ok = b.next() {
				b.done(g)
			}
			at, ok := b.s.Wake()
			require.True(t, ok)
			require.Greater(t, at, b.now+time.Hour, "%+v", c)
		}
	}
}

// A class that comes late has no claim on what it missed, though no request of the
// others is queued at that moment: they wait for one before they ask for the next.
func TestLateClassAndOneAtATime(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Classes: []Class{{}, {}}}, FlowConfig{}, FlowConfig{})
	for range 500 {
		b.get(0, 4*kib)
		b.order(1)
	}
	b.get(1, 1<<20, inClass(1))
	b.order(1)
	b.get(0, 1<<20)
	require.Equal(t, []int{20, 20}, counts(b.order(40), 2))
}

// Nor has the one that was alone to wait for what the late one missed, by weights.
func TestLateClassByWeight(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Classes: []Class{{Weight: 3}, {}}}, FlowConfig{}, FlowConfig{})
	for range 100 {
		b.get(0, 4*kib)
		b.order(1)
		b.get(1, 4*kib, inClass(1))
		b.order(1)
	}
	for range 500 {
		b.get(1, 4*kib, inClass(1))
		b.order(1)
	}
	b.get(0, 1<<20)
	b.get(1, 1<<20, inClass(1))
	n := counts(b.order(80), 2)
	require.InDelta(t, 60, n[0], 2)
}

// A limit that is raised lets requests go that it held, though nothing of their flow
// completes.
func TestRaisedLimitsLetGo(t *testing.T) {
	for name, c := range map[string]Config{"ord": {Ord: 1}, "class cap": {Classes: []Class{{Cap: 5 * kib}}}, "device": {Device: 1}} {
		t.Run(name, func(t *testing.T) {
			c.MTU, c.Slice, c.Threshold, c.Header = 4*kib, 4*kib, 1<<20, 1
			b := newBench(t, c, FlowConfig{})
			b.get(0, 64*kib)
			_, ok := b.next()
			require.True(t, ok)
			_, ok = b.next()
			require.False(t, ok)
			c.Ord, c.Device = 2, 0
			if c.Classes != nil {
				c.Classes = []Class{{}}
			}
			require.NoError(t, b.s.Reconfigure(c, b.now))
			_, ok = b.next()
			require.True(t, ok)
		})
	}
}

// Classes do not go: flows, and what waits, are of them.
func TestClassesStay(t *testing.T) {
	b := newBench(t, Config{Classes: make([]Class, 2)}, FlowConfig{})
	require.ErrorIs(t, b.s.Reconfigure(Config{}, b.now), ErrConfig)
	require.NoError(t, b.s.Reconfigure(Config{Classes: make([]Class, 3)}, b.now))
	require.Equal(t, 3, b.s.Classes())
}

// The one that others wait for may be withdrawn: they do not wait for a PUT behind it,
// which the outbound budget holds.
func TestDueGivesWayToNothingElse(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Threshold: 12 * kib, Reserve: 1, Small: 1, MaxPasses: 2, Outbound: 1, OutBurst: 100}, FlowConfig{}, FlowConfig{})
	for range 30 {
		b.get(1, 3*kib)
	}
	var under []Grant
	for g, ok := b.next(); ok; g, ok = b.next() {
		under = append(under, g)
	}
	b.s.out.take(1000) // the budget is used up for a quarter of an hour
	big := b.get(0, 8*kib)
	b.get(0, 4*kib, kind(Put))
	b.get(0, 8*kib, fenced)
	for range 3 {
		b.done(under[0])
		under = under[1:]
		for g, ok := b.next(); ok; g, ok = b.next() {
			under = append(under, g)
		}
	}
	require.Equal(t, b.flows[0], Flow(b.s.due))
	b.s.Cancel(big)
	for range 2 {
		b.done(under[0])
		under = under[1:]
	}
	g, ok := b.next()
	require.True(t, ok)
	require.Equal(t, b.flows[1], g.Flow)
}

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
