package shaper

import (
	"math"
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

// Of several requests that were passed over too often at once, the first in turn is waited for, and not the one whose
// unit is first.
func TestFirstOfThoseThatAreDue(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Threshold: 13 * kib, Reserve: kib, Small: 100, Outbound: 1000, OutBurst: 10_000, MaxPasses: 1, Policy: Priority},
		FlowConfig{}, FlowConfig{Priority: 1}, FlowConfig{Priority: -1})
	for i, k := range []Kind{Get, Put} {
		b.get(2, 5000, kind(k))
		under := b.all()
		require.Len(t, under, 1)
		for f := range 2 {
			b.get(f, 8*kib, kind(k))
		}
		b.get(2, kib, kind(k))
		over := b.all()
		require.Len(t, over, 1)
		require.Equal(t, b.flows[2], over[0].Flow)
		require.EqualValues(t, 2*(i+1), b.s.Stats().Passes)
		require.EqualValues(t, 2*(i+1), b.s.ClassStats(0).Passes)
		b.done(under[0])
		b.done(over[0])
		for f := range 2 {
			b.now += time.Minute // for the budget
			got := b.all()
			require.Len(t, got, 1)
			require.Equal(t, b.flows[1-f], got[0].Flow, "kind %d", k)
			b.done(got[0])
		}
		b.now += time.Minute
	}
}

// The flow that is due stays so, though another one that comes before it in turn is passed over too often meanwhile.
func TestDueStays(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Threshold: 13 * kib, Reserve: kib, Small: 100, MaxPasses: 1, Policy: Priority},
		FlowConfig{}, FlowConfig{Priority: 1}, FlowConfig{Priority: -1})
	b.get(2, 5000)
	out := b.all()
	b.get(0, 8*kib)
	b.get(2, kib)
	out = append(out, b.all()...)
	b.get(1, 8*kib)
	b.get(2, 64)
	out = append(out, b.all()...)
	require.Len(t, out, 3)
	for _, g := range out {
		require.Equal(t, b.flows[2], g.Flow)
		b.done(g)
	}
	require.Equal(t, []int{0, 1}, b.order(2))
}

// Nothing is due, nor looked for, while nothing waits.
func TestNothingWaits(t *testing.T) {
	b := newBench(t, Config{}, FlowConfig{})
	b.get(0, kib)
	require.Len(t, b.all(), 1)
	for range 2 {
		_, ok := b.s.Wake()
		require.False(t, ok)
		b.now += time.Hour
		require.Empty(t, b.all())
		require.Zero(t, b.s.Stats().Overdue)
	}
}
