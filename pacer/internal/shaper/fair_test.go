package shaper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// crowd is flows that keep READs under way behind a slow link, beside one of small
// READs, as suite pacer has it on a device.
type crowd struct {
	*bench
	pipe  pipe
	sizes []int // of the READs of each flow
	ahead int   // bytes that each has under way or waits for
	probe bool  // the last flow READs 64 bytes every 2 ms
}

type flight struct {
	g  Grant
	at time.Duration
}

// between returns how many bytes each flow got between two moments, and the longest
// time that a small READ took.
func (c *crowd) between(from, until time.Duration) (got []float64, slowest time.Duration) {
	var out []flight
	got = make([]float64, len(c.sizes))
	for f, n := range c.sizes {
		for range max(c.ahead/n, 1) {
			c.get(f, n)
		}
	}
	small := len(c.sizes)
	due, began := time.Duration(0), time.Duration(-1)
	cfg := c.s.Config()
	for c.now < until {
		if c.probe && began < 0 && c.now >= due {
			began = c.now
			c.get(small, 64)
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			out = append(out, flight{g, c.pipe.take(c.now, cfg.RspPktLen(g.Length))})
		}
		next := due
		if !c.probe || began >= 0 {
			next = until
		}
		if at, ok := c.s.Wake(); ok {
			next = min(next, at)
		}
		if len(out) == 0 || next < out[0].at {
			c.now = next
			continue
		}
		c.now = out[0].at
		g := out[0].g
		out = out[1:]
		if _, ok := c.s.Completed(g.Sub, c.now); !ok {
			c.t.Fatal("not outstanding")
		}
		f := int(g.Flow - c.flows[0]) // [bench.place] looks for it
		if f < small && c.now > from && c.now <= until {
			got[f] += float64(g.Length)
		}
		for r, _, _, ok := c.s.Finished(); ok; r, _, _, ok = c.s.Finished() {
			c.s.Free(r)
			if f < small {
				if _, err := c.s.Submit(g.Flow, Command{Length: c.sizes[f]}, c.now); err != nil {
					c.t.Fatal(err)
				}
				continue
			}
			if c.now > from {
				slowest = max(slowest, c.now-began)
			}
			began, due = -1, c.now+2*time.Millisecond
		}
	}
	return got, slowest
}

// jain is Jain's index: 1 if all have the same, 1/n if one has everything.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (squares * float64(len(x)))
}

func newCrowd(t *testing.T, c Config, rate float64, probe bool, sizes ...int) *crowd {
	c.Header, c.Threshold = 66, 40*kib
	k := &crowd{pipe: pipe{rate: rate, base: 100 * time.Microsecond}, sizes: sizes, ahead: 64 * kib, probe: probe}
	flows := make([]FlowConfig, len(sizes))
	if probe {
		flows = append(flows, FlowConfig{})
	}
	k.bench = newBench(t, c, flows...)
	return k
}

// While more flows READ than there are units, all get the same in each window of a few
// sub-requests, however slow the link is: units go round by what is fair within a second
// or two, not within a minute.
func TestManyFlowsShareEvenly(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, Priority, Deficit} {
		for _, flows := range []int{32, 33, 100, 1000} {
			for _, slice := range []int{4 * kib, 16 * kib} {
				for _, pieces := range []int{8, 28} { // of each flow in a window
					if flows > 33 && (pieces > 8 || slice < 16*kib) || flows != 33 && policy != RoundRobin && policy != Deficit {
						continue
					}
					for _, probe := range []bool{true, false}[:1+flows%2] {
						name := fmt.Sprintf("%v/%d flows of %d bytes/%d each/probe %v", policy, flows, slice, pieces, probe)
						const window = 3 * time.Second
						rate := float64(flows*pieces*slice) / window.Seconds()
						c := newCrowd(t, Config{Slice: slice, Policy: policy}, rate, probe, slices.Repeat([]int{16 * kib}, flows)...)
						got, _ := c.between(window/4, window/4+window)
						require.GreaterOrEqual(t, jain(got), 0.98, name)
						require.LessOrEqual(t, slices.Max(got)-slices.Min(got), 4*float64(slice), name)
					}
				}
			}
		}
	}
}

// Under the deficit policy it is bytes that all get the same of, whatever the length of
// their READs.
func TestManyFlowsShareBytes(t *testing.T) {
	for _, flows := range []int{10, 33, 100} {
		for _, slice := range []int{4 * kib, 16 * kib} {
			name := fmt.Sprintf("%d flows, sub-requests of %d bytes", flows, slice)
			var sizes []int
			for f := range flows {
				sizes = append(sizes, []int{kib, 4 * kib, 6000, 16 * kib, 64 * kib}[f%5])
			}
			const window = 3 * time.Second
			c := newCrowd(t, Config{Slice: slice, Policy: Deficit}, float64(flows*20*slice)/window.Seconds(), false, sizes...)
			got, _ := c.between(window/4, window/4+window)
			require.GreaterOrEqual(t, jain(got), 0.98, name)
		}
	}
}

// A small READ that takes a unit costs no flow a turn: it takes that of a flow that is not next in
// turn, and the flow is the next to get one.
func TestDisplacedFlowKeepsItsPlace(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Units: 2}, FlowConfig{}, FlowConfig{}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	for f := range 4 {
		b.get(f, 64*kib)
	}
	var bulk []int
	for range 8 {
		b.get(4, 64)
		for range 2 {
			if n := b.order(1)[0]; n != 4 {
				bulk = append(bulk, n)
			}
		}
	}
	require.Equal(t, []int{0, 1, 2, 3, 0, 1, 2, 3}, bulk)
}

// Nor does one that was passed over too often lose its unit to small ones.
func TestWhoIsDueKeepsItsUnit(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Units: 2, Threshold: 12 * kib, Reserve: kib, Small: 100, MaxPasses: 1}, FlowConfig{}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	b.get(3, 8*kib)
	out, _ := b.next()
	big := b.get(1, 8*kib)
	for range 100 {
		b.get(0, 64)
	}
	require.Equal(t, []int{0, 0, 0}, b.order(3))
	b.get(2, 64)
	require.ElementsMatch(t, []int{0, 2}, b.order(2))
	b.done(out)
	g, ok := b.next()
	require.True(t, ok)
	require.Equal(t, big, g.Request)
}

// One that waits for the solicited rate is waited for, too: smaller ones take no more of
// what has to add up for it.
func TestLargeOnesAndTheRate(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, Deficit} {
		c := newCrowd(t, Config{Slice: 16 * kib, Policy: policy, Rate: 1e6, Burst: 20 * kib}, 10e6, false, 600, 4*kib, 64*kib, 600, 4*kib, 64*kib)
		got, _ := c.between(time.Second, 5*time.Second)
		require.Greater(t, got[2]+got[5], 1e6, "%v: %v", policy, got)
		if policy == Deficit {
			require.GreaterOrEqual(t, jain(got), 0.98, "%v", got)
		}
	}
}

// What is more than a turn counts for the next one.
func TestTurnsAddUp(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 16 * kib, Units: 1, Policy: Deficit}, FlowConfig{}, FlowConfig{})
	for range 300 {
		b.get(0, 10*kib)
		b.get(1, 16*kib)
	}
	n := counts(b.order(300), 2)
	require.InEpsilon(t, 16*n[1], 10*n[0], 0.03, "%v", n)
}

// A flow that was alone for long has its turn as others have, once they come.
func TestAloneWasNoTurn(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Units: 1, Policy: Deficit}, FlowConfig{}, FlowConfig{})
	b.get(0, 1<<30)
	b.order(100)
	b.get(1, 1<<30)
	n := counts(b.order(80), 2)
	require.InDelta(t, n[0], n[1], 8)
}

// A flow of a higher class does not give up its unit to lower ones after each packet.
func TestUnitsOfHigherClasses(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Units: 4, Classes: []Class{{}, {Priority: 1}}}, make([]FlowConfig, 16)...)
	for f := range 16 {
		b.get(f, 1<<20, inClass(f/8))
	}
	n := counts(b.order(400), 16)
	for f := range 8 {
		require.Zero(t, n[f], "%v", n)
		require.InDelta(t, 50, n[8+f], 2, "%v", n)
	}
}

// One flow of a higher class alone keeps its unit for longer than one turn while lower
// ones wait, but not for ever.
func TestOneUnitAndTwoClasses(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Units: 1, Classes: []Class{{}, {Priority: 1}}}, FlowConfig{}, FlowConfig{})
	b.get(0, 1<<24)
	b.get(1, 1<<24, inClass(1))
	require.NotContains(t, b.order(16), 0)
	require.InDelta(t, 5, counts(b.order(5*49), 2)[0], 1, "one of four turns, of which three are of sixteen packets")
}

// The flow of the highest priority does not wait in line behind others, and keeps its
// unit; without the policy all are equal.
func TestUnitsByPriorityOfFlows(t *testing.T) {
	for policy, want := range map[Policy]int{Priority: 160, RoundRobin: 10} {
		flows := make([]FlowConfig, 17)
		flows[16].Priority = 1
		b := newBench(t, Config{Slice: 4 * kib, Units: 4, Policy: policy}, flows...)
		for f := range flows {
			b.get(f, 1<<24)
		}
		require.InDelta(t, want, counts(b.order(170), len(flows))[16], 10, policy.String())
	}
}

// Classes come first under the deficit policy too: what a flow of a lower one has left of
// its quantum does not go before a flow of a higher one, which has used its own up.
func TestDeficitWithinAClass(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Policy: Deficit, Threshold: 9 * kib, Reserve: 1, Small: 1, Classes: []Class{{}, {Priority: 1}}}, FlowConfig{}, FlowConfig{})
	b.get(0, 1<<20)
	require.Equal(t, []int{0, 0}, b.order(2))
	b.get(1, 64*kib, inClass(1))
	require.NotContains(t, b.order(16), 0)
	require.NotContains(t, b.order(8), 1)
}

// One that waits for room has its part of a round: smaller ones do not begin the next one
// in its place.
func TestRoundsWaitForRoom(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Policy: Deficit, Threshold: 12 * kib, Reserve: 1, Small: 1, MaxPasses: 1 << 30}, FlowConfig{}, FlowConfig{})
	for range 200 {
		b.get(0, kib)
	}
	b.get(1, 64*kib)
	var out []Grant
	bytes := make([]int, 2)
	for bytes[1] < 64*kib {
		for g, ok := b.next(); ok; g, ok = b.next() {
			out = append(out, g)
			bytes[b.place(g.Flow)] += g.Length
		}
		b.done(out[0])
		out = out[1:]
	}
	require.InDelta(t, 64*kib, bytes[0], 10*kib)
}

// A large PUT is not starved by small ones, which need less of the outbound budget at a
// time, nor do they wait for one that cannot go.
func TestLargePuts(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, Deficit} {
		b := newBench(t, Config{MTU: kib, Policy: policy, Outbound: 1e6, OutBurst: 100 * kib, MaxPasses: 4}, make([]FlowConfig, 6)...)
		for f, n := range []int{kib, 90 * kib, 2 * kib, 80 * kib, 90 * kib, 90 * kib} {
			for range 3000 {
				b.get(f, n, kind(Put))
			}
		}
		sent := make([]float64, 6)
		go1 := func(d time.Duration) {
			for end := b.now + d; b.now < end; {
				if g, ok := b.next(); ok {
					sent[b.place(g.Flow)] += float64(g.Length)
					b.done(g)
					continue
				}
				at, ok := b.s.Wake()
				require.True(t, ok)
				b.now = max(at, b.now+1)
			}
		}
		go1(10 * time.Second)
		for _, f := range []int{1, 3, 4, 5} {
			require.InEpsilon(t, 2.2e6, sent[f], 0.25, "%v: %v", policy, sent)
			b.s.Down(b.flows[f])
		}
		clear(sent)
		go1(time.Second)
		require.InDelta(t, 1e6, sent[0]+sent[2], 2e5, "%v: %v", policy, sent)
	}
}

// PUTs do not wait for a round of GETs.
func TestRoundsOfPuts(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: 8 * kib, Policy: Deficit, Threshold: 12 * kib, Reserve: 1, Small: 1}, FlowConfig{}, FlowConfig{})
	b.get(0, 64*kib)
	for range 20 {
		b.get(1, 8*kib, kind(Put))
	}
	n := 0
	for g, ok := b.next(); ok; g, ok = b.next() {
		if g.Kind == Put {
			n++
		}
	}
	require.Equal(t, 20, n)
}

// Of those that were passed over too often the first in turn is waited for, not always
// the same one: all of one kind get the same.
func TestDifferentLengthsTakeTurns(t *testing.T) {
	for _, passes := range []int{1, 3, 16} {
		c := newCrowd(t, Config{Slice: 4 * kib, MaxPasses: passes}, 10*28*4*kib/3.0, false, kib, 4*kib, 6000, 16*kib, 64*kib, kib, 4*kib, 6000, 16*kib, 64*kib)
		got, _ := c.between(time.Second, 4*time.Second)
		for f := range 5 {
			require.InEpsilon(t, got[f], got[f+5], 0.15, "%v", got)
		}
		require.GreaterOrEqual(t, jain([]float64{got[1], got[3], got[4], got[6], got[8], got[9]}), 0.98, "%v", got)
	}
}
