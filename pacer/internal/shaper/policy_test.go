package shaper

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/histogram"
)

// bench is a shaper with flows named by their index.
type bench struct {
	t     *testing.T
	s     *Shaper
	flows []Flow
	now   time.Duration
}

func newBench(t *testing.T, c Config, flows ...FlowConfig) *bench {
	t.Helper()
	if c.Header == 0 {
		c.Header = 1 // small enough to count with
	}
	s, err := New(c)
	require.NoError(t, err)
	b := &bench{t: t, s: s}
	for _, f := range flows {
		h, err := s.AddFlow(f)
		require.NoError(t, err)
		b.flows = append(b.flows, h)
	}
	return b
}

func (b *bench) get(flow, length int, more ...func(*Command)) Request {
	b.t.Helper()
	c := Command{Kind: Get, Length: length}
	for _, m := range more {
		m(&c)
	}
	r, err := b.s.Submit(b.flows[flow], c, b.now)
	require.NoError(b.t, err)
	return r
}

func inClass(n int) func(*Command)        { return func(c *Command) { c.Class = n } }
func kind(k Kind) func(*Command)          { return func(c *Command) { c.Kind = k } }
func fenced(c *Command)                   { c.Fence = true }
func (b *bench) next() (Grant, bool)      { return b.s.Next(b.now) }
func (b *bench) explain(r Request) Reason { return b.s.Explain(r, b.now) }
func (b *bench) done(g Grant) {
	_, ok := b.s.Completed(g.Sub, b.now)
	require.True(b.t, ok)
}
func (b *bench) place(f Flow) (place int) {
	for place = range b.flows {
		if b.flows[place] == f {
			return
		}
	}
	return -1
}

// all returns what may go now.
func (b *bench) all() (out []Grant) {
	for g, ok := b.next(); ok; g, ok = b.next() {
		out = append(out, g)
	}
	return out
}

// order is which flows go, one outstanding at a time.
func (b *bench) order(n int) (out []int) {
	b.t.Helper()
	for range n {
		g, ok := b.next()
		require.True(b.t, ok)
		out = append(out, b.place(g.Flow))
		b.done(g)
	}
	return out
}

func counts(order []int, flows int) []int {
	n := make([]int, flows)
	for _, f := range order {
		n[f]++
	}
	return n
}

const kib = 1 << 10

func TestRoundRobinTakesTurns(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	for f := range 3 {
		b.get(f, 64*kib)
	}
	require.Equal(t, []int{0, 1, 2, 0, 1, 2}, b.order(6))
}

func TestPriorityOfFlows(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Policy: Priority}, FlowConfig{}, FlowConfig{Priority: 2}, FlowConfig{Priority: 1})
	for f := range 3 {
		b.get(f, 8*kib)
	}
	require.Equal(t, []int{1, 1, 2, 2, 0, 0}, b.order(6))
}

func TestDeficitFollowsWeights(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Policy: Deficit, Threshold: 1 << 20}, FlowConfig{Weight: 3}, FlowConfig{}, FlowConfig{Weight: 2})
	for f := range 3 {
		b.get(f, 1<<20)
	}
	require.Equal(t, []int{90, 30, 60}, counts(b.order(180), 3))
}

// Different sizes count by their bytes.
func TestDeficitCountsBytes(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Policy: Deficit, Threshold: 1 << 20, Small: 1}, FlowConfig{}, FlowConfig{})
	b.get(0, 1<<20)
	for range 2000 {
		b.get(1, kib)
	}
	n := counts(b.order(900), 2)
	require.InDelta(t, 8, float64(n[1])/float64(n[0]), 0.2)
	require.Zero(t, b.s.Stats().Passes, "nothing was held")
}

// Rounds begin with the policy: what went before makes no debts.
func TestDeficitBegins(t *testing.T) {
	c := Config{Slice: 4 * kib, Threshold: 1 << 20, Header: 1}
	b := newBench(t, c, FlowConfig{}, FlowConfig{})
	b.get(0, 1<<20)
	b.order(50)
	b.get(1, 1<<20)
	c.Policy = Deficit
	require.NoError(t, b.s.Reconfigure(c, 0))
	require.Equal(t, []int{10, 10}, counts(b.order(20), 2))
}

// More units are for those in line, and a flow that is down has none.
func TestUnitsForFlows(t *testing.T) {
	c := Config{Slice: 4 * kib, Units: 1, Header: 1}
	b := newBench(t, c, make([]FlowConfig, 4)...)
	var requests []Request
	for f := range 3 {
		requests = append(requests, b.get(f, 1<<20))
	}
	b.s.Down(b.flows[3])
	require.Equal(t, Down, b.explain(b.get(3, 64)))
	require.Equal(t, []Reason{Arbitration, NoUnit, NoUnit}, []Reason{b.explain(requests[0]), b.explain(requests[1]), b.explain(requests[2])})
	for range 3 { // a flow keeps its unit
		require.NoError(t, b.s.Reconfigure(c, 0))
		require.Equal(t, Arbitration, b.explain(requests[0]))
	}
	for units, want := range map[int]int{2: 1, 3: 0, 4: 0} {
		c.Units = units
		require.NoError(t, b.s.Reconfigure(c, 0))
		n := 0
		for _, r := range requests {
			if b.explain(r) == NoUnit {
				n++
			}
		}
		require.Equal(t, want, n, "%d units", units)
	}
}

// While there are more flows than units each has its turns, by its weight under the
// deficit policy.
func TestUnitsGoRound(t *testing.T) {
	for name, p := range map[string]Policy{"round robin": RoundRobin, "deficit": Deficit, "priority": Priority} {
		t.Run(name, func(t *testing.T) {
			flows := make([]FlowConfig, 12)
			flows[3].Weight = 2
			b := newBench(t, Config{Slice: 4 * kib, Units: 3, Policy: p, Threshold: 1 << 20}, flows...)
			for f := range flows {
				b.get(f, 1<<20)
			}
			n := counts(b.order(1300), len(flows))
			for f := range n {
				want := 1300 / 12
				if p == Deficit {
					want = 100 * max(flows[f].Weight, 1)
				}
				require.InDelta(t, want, n[f], 12, "%v", n)
			}
		})
	}
}

func TestClassesShareByWeight(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Classes: []Class{{Weight: 1}, {Weight: 3}}}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	for f, c := range []int{0, 1, 0} {
		b.get(f, 4<<20, inClass(c))
	}
	require.Equal(t, []int{50, 300, 50}, counts(b.order(400), 3))
}

// A class that comes late gets its share from then on, not what it missed.
func TestIdleClassHasNoClaim(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Classes: []Class{{}, {}}}, FlowConfig{}, FlowConfig{})
	b.get(0, 4<<20)
	b.order(500)
	b.get(1, 1<<20, inClass(1))
	require.Equal(t, []int{20, 20}, counts(b.order(40), 2))
}

func TestHigherClassGoesFirst(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Units: 1, Classes: []Class{{}, {Priority: 1}}}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	b.get(0, 1<<20)
	b.get(2, 1<<20)
	b.order(3)
	b.get(1, 16*kib, inClass(1))
	require.Equal(t, []int{1, 1, 1, 1}, b.order(4), "though one unit is taken")
	require.NotContains(t, b.order(4), 1)
}

// The wait of each request for its first grant is counted. A clock may go back.
func TestWaitsAreCounted(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib}, FlowConfig{})
	var want histogram.Counts
	for _, wait := range []time.Duration{0, 1, time.Microsecond, time.Hour, -time.Microsecond} {
		r := b.get(0, 8*kib)
		b.now += wait
		b.order(2)
		b.now = max(b.now, 0) + time.Second
		b.s.Finished()
		b.s.Free(r)
		want.Add(uint64(max(wait, 0)))
	}
	b.get(0, 0)
	for range 2 { // it goes again, and waited once
		g, ok := b.next()
		require.True(t, ok)
		require.True(t, b.s.Failed(g.Sub, true))
	}
	want.Add(0)
	require.Equal(t, want, b.s.ClassStats(0).Waits)
}

// A response that would exceed the threshold is passed over, the next one goes, and
// the first one once there is room.
func TestPassingOver(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Threshold: 12 * kib, Reserve: 1, Small: 1}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	r312 := b.get(0, 8*kib)
	r314 := b.get(1, 8*kib)
	r316 := b.get(2, 2*kib)
	g312, _ := b.next()
	require.Equal(t, r312, g312.Request)
	require.Equal(t, Threshold, b.explain(r314))
	g316, _ := b.next()
	require.Equal(t, r316, g316.Request)
	_, ok := b.next()
	require.False(t, ok)
	b.done(g316)
	_, ok = b.next()
	require.False(t, ok)
	b.done(g312)
	g314, ok := b.next()
	require.True(t, ok)
	require.Equal(t, r314, g314.Request)
	require.EqualValues(t, 1, b.s.Stats().Passes)
}

// One that was passed over too often is waited for: small requests go on, within
// their reserve.
func TestPassedOverTooOften(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Threshold: 12 * kib, Reserve: kib, Small: 100, MaxPasses: 3}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	var last Grant
	for range 30 {
		b.get(1, 3*kib)
	}
	for range 3 {
		last, _ = b.next()
	}
	big := b.get(0, 8*kib)
	passed := 0
	for ; passed < 20; passed++ {
		b.done(last)
		g, ok := b.next()
		if !ok {
			break
		}
		last = g
		require.NotEqual(t, big, g.Request)
	}
	require.Equal(t, 4, passed, "one that was before it in turn, and three")
	small := b.get(2, 64)
	g, ok := b.next()
	require.True(t, ok)
	require.Equal(t, small, g.Request)
	for range 40 {
		b.get(2, 64)
	}
	n := 0
	for ; ; n++ {
		if _, ok := b.next(); !ok {
			break
		}
	}
	require.Equal(t, kib/65-1, n)
}

func TestSmallOnesHaveAReserve(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 4 * kib, Threshold: 8 * kib, Reserve: kib, Small: 64, MaxPasses: 1000}, FlowConfig{}, FlowConfig{})
	b.get(0, 64*kib)
	_, ok := b.next()
	require.True(t, ok)
	_, ok = b.next()
	require.False(t, ok, "the rest is reserved")
	for range 100 {
		b.get(1, 64)
	}
	n := 0
	for ; ; n++ {
		if _, ok := b.next(); !ok {
			break
		}
	}
	require.Equal(t, (8*kib-4*(kib+1))/65, n)
}

// What is larger than the threshold goes alone, and so does every one of many.
func TestNonsenseThresholds(t *testing.T) {
	b := newBench(t, Config{Threshold: 1, Slice: 4 * kib}, FlowConfig{}, FlowConfig{})
	b.get(0, 64*kib)
	b.get(1, 64)
	require.Len(t, b.order(17), 17)
	for _, c := range []Config{{Threshold: -1}, {Threshold: math.MaxInt64}, {Reserve: 5, Threshold: 4}, {Units: 65}, {Rate: math.NaN()}, {Rate: -1}, {Outbound: math.Inf(1)},
		{Policy: 9}, {Classes: make([]Class, 17)}, {Classes: []Class{{Weight: -1}}}, {MTU: -4}} {
		_, err := New(c)
		require.ErrorIs(t, err, ErrConfig, "%+v", c)
		require.ErrorIs(t, b.s.Reconfigure(c, 0), ErrConfig)
	}
	_, err := b.s.Submit(b.flows[0], Command{Length: -1}, 0)
	require.ErrorIs(t, err, ErrConfig)
	_, err = b.s.Submit(b.flows[0], Command{Class: 1}, 0)
	require.ErrorIs(t, err, ErrConfig)
	_, err = b.s.Submit(99, Command{}, 0)
	require.ErrorIs(t, err, ErrConfig)
}

func TestRspPktLen(t *testing.T) {
	c := Config{MTU: 1024, Header: 66}
	for n, want := range map[int]int64{0: 66, 1: 67, 8: 74, 1024: 1090, 1025: 1157, 2048: 2180} {
		require.Equal(t, want, c.RspPktLen(n), n)
	}
}

// Bytes are solicited at the rate, after a burst, and the time of the next one is told.
func TestSolicitedRate(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Header: 24, Slice: kib, Threshold: 1 << 30, Rate: 1e6, Burst: 10 * 1048, Small: 1, Reserve: 500, Ord: 1 << 20, Overdue: -1}, FlowConfig{MaxReads: 1 << 20}, FlowConfig{})
	b.get(0, 1<<20)
	n := 0
	for b.now < time.Second {
		if _, ok := b.next(); ok {
			n++
			continue
		}
		at, ok := b.s.Wake()
		require.True(t, ok)
		require.Greater(t, at, b.now)
		b.now = at
	}
	require.InDelta(t, 10+1e6/1048, n, 1)
	for _, ok := b.next(); ok; _, ok = b.next() {
	}
	r := b.get(1, 1)
	require.Equal(t, None, func() Reason { g, _ := b.next(); require.Equal(t, r, g.Request); return b.explain(r) }(), "small ones borrow")
}

// PUTs have a budget, and a GET does not overtake them.
func TestOutboundBudget(t *testing.T) {
	b := newBench(t, Config{Outbound: 1e6, OutBurst: 10 * kib, Header: 1, MTU: kib}, FlowConfig{}, FlowConfig{})
	for range 20 {
		b.get(0, 1000, kind(Put))
		b.get(1, 1000, kind(Put))
	}
	require.Equal(t, []int{5, 5}, counts(b.order(10), 2))
	_, ok := b.next()
	require.False(t, ok)
	at, ok := b.s.Wake()
	require.True(t, ok)
	require.InDelta(t, 770, at.Microseconds(), 10)
	g := b.get(0, 100)
	require.Equal(t, Behind, b.explain(g))
}

// PUTs overtake held GETs, but no fence.
func TestOvertaking(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 2 * kib, Reserve: 1}, FlowConfig{})
	g := b.get(0, 8*kib)
	first, _ := b.next()
	put := b.get(0, 100, kind(Put))
	got, ok := b.next()
	require.True(t, ok)
	require.Equal(t, put, got.Request)
	fence := b.get(0, 100, kind(Put), fenced)
	behind := b.get(0, 100, kind(Put))
	_, ok = b.next()
	require.False(t, ok)
	require.Equal(t, Threshold, b.explain(g))
	require.Equal(t, Behind, b.explain(fence))
	require.Equal(t, Behind, b.explain(behind))
	b.done(first)
	for range 7 {
		got, ok = b.next()
		require.True(t, ok)
		require.Equal(t, g, got.Request)
		b.done(got)
	}
	got, _ = b.next()
	require.Equal(t, fence, got.Request)
	got, _ = b.next()
	require.Equal(t, behind, got.Request)
}

func TestExplain(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib, Ord: 2, Device: 4, Units: 2, Classes: []Class{{}, {Cap: kib}}},
		FlowConfig{Depth: 4}, FlowConfig{MaxReads: 1}, FlowConfig{}, FlowConfig{})
	a := b.get(0, 8*kib)
	c := b.get(1, 8*kib)
	d := b.get(2, 8*kib)
	require.Equal(t, Arbitration, b.explain(a))
	require.Equal(t, NoUnit, b.explain(d))
	b.s.Pause(true)
	require.Equal(t, Paused, b.explain(a))
	b.s.Pause(false)
	var gs []Grant
	for g, ok := b.next(); ok; g, ok = b.next() {
		gs = append(gs, g)
	}
	require.Len(t, gs, 4)
	require.Equal(t, OrdPktActive, b.explain(a))
	require.Equal(t, OrdPktActive, b.explain(c))
	require.Equal(t, Device, b.explain(d))
	b.s.Down(b.flows[2])
	require.Equal(t, Down, b.explain(d))
	b.s.Up(b.flows[2])
	b.s.Cancel(a)
	b.s.Cancel(c)
	for _, g := range gs {
		b.done(g)
	}
	require.Equal(t, Finished, b.explain(a))
	e := b.get(3, 8*kib, inClass(1))
	for g, ok := b.next(); ok; g, ok = b.next() {
		gs = append(gs, g)
	}
	require.Equal(t, ClassCap, b.explain(e))
	s := make(map[string]bool)
	for r := None; r <= Arbitration; r++ {
		s[r.String()] = true
	}
	require.Len(t, s, int(Arbitration)+1)
}

// The unit of the least urgent flow goes to a more urgent one, and to no other.
func TestLeastUrgentGivesUpItsUnit(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Units: 2, Threshold: 100 * kib, Classes: []Class{{}, {Priority: 1}, {Priority: 2}}}, make([]FlowConfig, 4)...)
	low := b.get(0, 8*kib)
	middle := b.get(1, 8*kib, inClass(1))
	require.Equal(t, NoUnit, b.explain(b.get(2, 8*kib)))
	high := b.get(3, 8*kib, inClass(2))
	require.Equal(t, []Reason{NoUnit, Arbitration, Arbitration}, []Reason{b.explain(low), b.explain(middle), b.explain(high)})
}

// What a flow presented is not sent once its queue pair is in error.
func TestDownWhatWasPresented(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Threshold: 1 << 20}, FlowConfig{}, FlowConfig{})
	b.get(0, 64*kib)
	b.get(1, 64*kib)
	require.Equal(t, []int{0}, b.order(1))
	b.s.Down(b.flows[1])
	require.Equal(t, []int{0, 0, 0}, b.order(3))
	b.s.Up(b.flows[1])
	require.Equal(t, []int{2, 2}, counts(b.order(4), 2))
}

// newDue returns a bench with a flow that was passed over too often with a large request, has another one under way, and is
// waited for.
func newDue(t *testing.T) (b *bench, big Request, under Grant) {
	t.Helper()
	b = newBench(t, Config{MTU: kib, Slice: 8 * kib, Threshold: 13 * kib, Reserve: kib, Small: 100, MaxPasses: 1}, FlowConfig{}, FlowConfig{})
	b.get(0, kib)
	first := b.all()
	require.Len(t, first, 1)
	for range 9 {
		b.get(1, 3*kib)
	}
	others := b.all()
	big = b.get(0, 8*kib)
	for range 2 { // in its turn, and out of it
		b.done(others[0])
		others = append(others[1:], b.all()...)
	}
	b.done(others[0])
	require.Empty(t, b.all())
	require.EqualValues(t, b.flows[0], b.s.due)
	return b, big, first[0]
}

// The first flow that is passed over too often is waited for, until it cannot use what others leave for it.
func TestDueEnds(t *testing.T) {
	for name, end := range map[string]func(b *bench, big Request, under Grant){
		"down":      func(b *bench, _ Request, _ Grant) { b.s.Down(b.flows[0]) },
		"cancelled": func(b *bench, big Request, _ Grant) { b.s.Cancel(big) },
		"full":      func(b *bench, _ Request, _ Grant) { b.s.flows[0].Depth = 1 },
		"reads":     func(b *bench, _ Request, _ Grant) { b.s.flows[0].MaxReads = 1 },
		"overdue":   func(b *bench, _ Request, under Grant) { b.s.lend(&b.s.subs[under.Sub.place()]) },
	} {
		b, big, under := newDue(t)
		end(b, big, under)
		got := b.all()
		require.NotEmpty(t, got, name)
		require.Equal(t, b.flows[1], got[0].Flow, name)
		require.EqualValues(t, none, b.s.due, name)
		require.Zero(t, b.s.flows[0].passes, name)
	}
}

// A flow that a GET waits for goes on to be waited for after a PUT of its own.
func TestDueAfterAPut(t *testing.T) {
	b, _, _ := newDue(t)
	b.get(0, kib, kind(Put))
	got := b.all()
	require.Len(t, got, 1)
	require.Equal(t, Put, got[0].Kind)
	require.EqualValues(t, b.flows[0], b.s.due)
}

// Nor is a PUT waited for that cannot use the budget that others leave for it.
func TestDuePutEnds(t *testing.T) {
	for name, end := range map[string]func(b *bench, big Request){
		"down":      func(b *bench, _ Request) { b.s.Down(b.flows[0]) },
		"cancelled": func(b *bench, big Request) { b.s.Cancel(big) },
		"full":      func(b *bench, _ Request) { b.s.flows[0].Depth = 1 },
	} {
		b := newBench(t, Config{MTU: kib, Outbound: 1, OutBurst: 10_000, MaxPasses: 1}, FlowConfig{}, FlowConfig{})
		put := func(flow, n int) Request { return b.get(flow, n, kind(Put)) }
		put(0, 1000)
		require.Len(t, b.all(), 1)
		put(1, 1000)
		require.Len(t, b.all(), 1)
		big := put(0, 9000)
		for range 9 {
			put(1, 500)
		}
		require.Len(t, b.all(), 1, name) // passes it over, once too often
		require.EqualValues(t, b.flows[0], b.s.duePut, name)
		b.get(0, kib) // keeps the flow busy
		end(b, big)
		got := b.all()
		require.NotEmpty(t, got, name)
		n := 0
		for _, g := range got {
			if g.Kind == Put {
				require.Equal(t, b.flows[1], g.Flow, name)
				n++
			}
		}
		require.Equal(t, 8, n, name)
		require.EqualValues(t, none, b.s.duePut, name)
	}
}

// Only the piece that failed goes again, and a flow that is down holds it.
func TestOnlyWhatFailedIsIssuedAgain(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib}, FlowConfig{MaxReads: 4})
	r := b.get(0, 6*kib)
	var gs []Grant
	for g, ok := b.next(); ok; g, ok = b.next() {
		gs = append(gs, g)
	}
	require.Len(t, gs, 4)
	b.done(gs[0])
	b.s.Down(b.flows[0])
	for _, g := range gs[1:3] {
		require.True(t, b.s.Failed(g.Sub, true))
	}
	b.done(gs[3])
	_, ok := b.next()
	require.False(t, ok)
	b.s.Up(b.flows[0])
	var offsets []int
	for g, ok := b.next(); ok; g, ok = b.next() {
		offsets = append(offsets, g.Offset/kib)
		b.done(g)
	}
	require.Equal(t, []int{1, 2, 4, 5}, offsets)
	got, _, complete, ok := b.s.Finished()
	require.True(t, ok && complete)
	require.Equal(t, r, got)
	require.EqualValues(t, 2, b.s.Stats().Reissued)
}

// A request is not over while a piece of it waits to go again, and no fenced PUT goes
// before that piece.
func TestFailedPiecesComeFirst(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 3 * kib, Reserve: 1, Small: 1}, FlowConfig{}, FlowConfig{})
	b.get(0, 2*kib)
	first, _ := b.next()
	second, _ := b.next()
	b.get(1, 2*kib)
	require.True(t, b.s.Failed(first.Sub, true))
	g, ok := b.next()
	require.True(t, ok)
	if g.Flow == b.flows[0] { // its turn was first: once more
		require.Equal(t, first.Offset, g.Offset)
		require.True(t, b.s.Failed(g.Sub, true))
		g, ok = b.next()
		require.True(t, ok)
	}
	require.Equal(t, b.flows[1], g.Flow, "it takes the room")
	b.done(second)
	_, _, _, ok = b.s.Finished()
	require.False(t, ok)
	require.NoError(t, b.s.Reconfigure(Config{MTU: kib, Slice: kib, Threshold: 1, Reserve: 1, Small: 1}, b.now)) // nothing but one at a time
	put := b.get(0, 10, kind(Put), fenced)
	_, ok = b.next()
	require.False(t, ok)
	require.Equal(t, Behind, b.explain(put))
}

// What was not solicited for long is not solicited at once.
func TestBucketHasABottom(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 1 << 20, Rate: 1e6, Burst: 4 * 1025, Reserve: 1, Small: 1}, FlowConfig{})
	b.now = time.Hour
	b.get(0, 100*kib)
	n := 0
	for _, ok := b.next(); ok; _, ok = b.next() {
		n++
	}
	require.Equal(t, 4, n)
}

// A flow that others wait for holds none of them once its queue pair fails.
func TestDueAndDown(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Threshold: 12 * kib, Reserve: kib, Small: 100, MaxPasses: 1}, FlowConfig{}, FlowConfig{})
	for range 9 {
		b.get(1, 3*kib)
	}
	var gs []Grant
	for g, ok := b.next(); ok; g, ok = b.next() {
		gs = append(gs, g)
	}
	b.get(0, 8*kib)
	for range 2 { // in its turn, and out of it
		b.done(gs[0])
		gs = gs[1:]
		g, ok := b.next()
		require.True(t, ok)
		gs = append(gs, g)
	}
	b.done(gs[0])
	_, ok := b.next()
	require.False(t, ok, "it is due")
	b.s.Down(b.flows[0])
	_, ok = b.next()
	require.True(t, ok)
}

// What is acquired goes in one piece.
func TestWhole(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 100 * kib}, FlowConfig{})
	b.get(0, 10*kib, func(c *Command) { c.Whole = true })
	g, _ := b.next()
	require.Equal(t, 10*kib, g.Length)
}

// Without room of any kind nothing allocates once there was as much under way.
func TestWarmPathDoesNotAllocate(t *testing.T) {
	b := newBench(t, Config{}, FlowConfig{}, FlowConfig{})
	turn := func() {
		b.s.Submit(b.flows[0], Command{Kind: Get, Length: 64 * kib}, b.now)
		b.s.Submit(b.flows[1], Command{Kind: Get, Length: 64}, b.now)
		for g, ok := b.next(); ok; g, ok = b.next() {
			b.s.Completed(g.Sub, b.now)
		}
		for r, _, _, ok := b.s.Finished(); ok; r, _, _, ok = b.s.Finished() {
			b.s.Free(r)
		}
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(100, turn))
}

// The places of flows that are gone are used again.
func TestFlowsComeAndGo(t *testing.T) {
	b := newBench(t, Config{})
	var live []Flow
	for i := range 3000 {
		f, err := b.s.AddFlow(FlowConfig{})
		require.NoError(t, err)
		require.NotContains(t, live, f)
		if live = append(live, f); i >= 100 {
			require.True(t, b.s.RemoveFlow(live[0]))
			live = live[1:]
		}
	}
	require.Len(t, b.s.flows, 101)
}

func BenchmarkAdmit(b *testing.B) {
	s, _ := New(Config{})
	f, _ := s.AddFlow(FlowConfig{})
	for i := 0; b.Loop(); i++ {
		now := time.Duration(i)
		s.Submit(f, Command{Kind: Get, Length: 4096}, now)
		g, _ := s.Next(now)
		s.Completed(g.Sub, now)
		r, _, _, _ := s.Finished()
		s.Free(r)
	}
}
