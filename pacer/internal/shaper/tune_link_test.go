package shaper

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// shallow is the link of suite pacer: a token bucket, in front of it a queue of 64 KiB
// that loses what does not fit, and before that the processor which makes the responses.
// What was lost comes after the transport's timer.
type shallow struct {
	rate, burst float64 // bytes in a second, and at once
	processor   float64
	ready       time.Duration // the processor
	free        time.Duration // the link
	lost        int
}

const (
	shallowQueue = 64 * kib
	retransmit   = 67 * time.Millisecond
)

func (l *shallow) set(mbit float64, now time.Duration) {
	waits := max(l.free-now, 0).Seconds() * l.rate
	l.rate = mbit / 8 * 1e6
	l.burst = max(l.rate/250, 4*4200)
	if l.free > now {
		l.free = now + time.Duration(waits/l.rate*1e9)
	}
}

// take returns when a response comes that is asked for now.
func (l *shallow) take(now time.Duration, wire int64) time.Duration {
	l.ready = max(l.ready, now+300*time.Microsecond) + time.Duration(float64(wire)/l.processor*1e9)
	at := l.ready
	if (l.free-at).Seconds()*l.rate+float64(wire) > shallowQueue+l.burst {
		l.lost++
		return l.take(now+retransmit, wire)
	}
	l.free = max(l.free, at-time.Duration(l.burst/l.rate*1e9)) + time.Duration(float64(wire)/l.rate*1e9)
	return max(at, l.free)
}

// reader READs by eight flows as fast as the tuner lets it, and sees what comes late by
// an exponential time of that mean.
type reader struct {
	*bench
	rng  *rand.Rand
	link shallow
	late time.Duration
	seen time.Duration
	out  []flight
	far  []time.Duration // of each flow: until its responses come to the link
	way  []flight        // to it
	most int64           // the largest threshold
}

func newReader(t *testing.T, seed uint64, mbit float64, late time.Duration, far ...time.Duration) *reader {
	if far == nil {
		far = make([]time.Duration, 8)
	}
	r := &reader{bench: newBench(t, Config{Tune: len(far) == 8, Header: 66}, make([]FlowConfig, len(far))...), rng: rand.New(rand.NewPCG(seed, 1)), late: late, far: far}
	r.link.processor = 75e6
	r.link.set(mbit, 0)
	for f := range far {
		r.get(f, MaxLength)
	}
	return r
}

func insert(flights []flight, g Grant, at time.Duration) []flight {
	i, _ := slices.BinarySearchFunc(flights, at, func(f flight, at time.Duration) int { return int(f.at - at) })
	return slices.Insert(flights, i, flight{g, at})
}

// arrive has a response come to the link.
func (r *reader) arrive(g Grant) {
	c := r.s.Config()
	at := r.link.take(r.now, c.RspPktLen(g.Length))
	if r.late > 0 {
		at = max(at+time.Duration(r.rng.ExpFloat64()*float64(r.late)), r.seen)
	}
	r.seen = max(r.seen, at)
	r.out = insert(r.out, g, at)
}

// until goes on to a moment, and returns the part of the link that was used.
func (r *reader) until(end time.Duration) float64 {
	begin, bytes := r.now, 0.0
	c := r.s.Config()
	for r.now < end {
		for g, ok := r.next(); ok; g, ok = r.next() {
			if d := r.far[r.place(g.Flow)]; d > 0 {
				r.way = insert(r.way, g, r.now+d)
			} else {
				r.arrive(g)
			}
		}
		at, ok := r.s.Wake()
		if !ok {
			at = end
		}
		switch {
		case len(r.way) > 0 && r.way[0].at <= at && (len(r.out) == 0 || r.way[0].at < r.out[0].at):
			r.now = r.way[0].at
			r.arrive(r.way[0].g)
			r.way = r.way[1:]
		case len(r.out) > 0 && r.out[0].at <= at:
			r.now = r.out[0].at
			bytes += float64(c.RspPktLen(r.out[0].g.Length))
			r.done(r.out[0].g)
			r.out = r.out[1:]
		default:
			r.now = at
		}
		r.most = max(r.most, r.s.Threshold())
	}
	return bytes / (r.link.rate * (r.now - begin).Seconds())
}

// From a cold start, and when the rate of a link changes, the search for the threshold
// loses nothing in front of it, however slow it is, and fills it.
func TestTunerOnAShallowQueue(t *testing.T) {
	seed, seeds := testseed.New(t), uint64(20)
	if testing.Short() {
		seeds = 1
	}
	check := func(r *reader, name string) {
		require.Greater(t, r.until(r.now+2*time.Second), 0.95, name)
		if r.late == 0 { // else a base delay may be too long, in one case of thousands
			require.Zero(t, r.link.lost, name)
			require.Less(t, r.s.Threshold(), 5*r.s.tune.one, name)
		}
	}
	lost, runs := 0, 0
	for _, late := range []time.Duration{0, 200 * time.Microsecond} {
		for k := range seeds {
			for _, mbit := range []float64{5, 10, 20, 40, 80, 160} {
				r := newReader(t, seed+k, mbit, late)
				r.until(200 * time.Millisecond)
				check(r, fmt.Sprintf("%v Mbit/s, seen %v late", mbit, late))
				lost, runs = lost+r.link.lost, runs+1
			}
			for _, change := range [][2]float64{{5, 160}, {10, 40}, {20, 80}, {40, 10}, {80, 20}, {160, 5}} {
				r := newReader(t, seed+k, change[0], late)
				r.until(2 * time.Second)
				r.link.set(change[1], r.now)
				r.until(r.now + 2*time.Second)
				name := fmt.Sprintf("%v Mbit/s, then %v, seen %v late", change[0], change[1], late)
				check(r, name)
				lost, runs = lost+r.link.lost, runs+1
			}
		}
	}
	require.Less(t, lost, runs/5+3)
}

// Peers that are far away, one of nine or all, do not change a threshold that is not found by
// delay: nothing is lost.
func TestFarPeers(t *testing.T) {
	for _, mbit := range []float64{40, 160} {
		for _, far := range []time.Duration{10 * time.Millisecond, 150 * time.Millisecond} {
			for n := range 10 {
				peers := make([]time.Duration, 9)
				for f := range n {
					peers[f*4%9] = far
				}
				r := newReader(t, 1, mbit, 0, peers...)
				used := r.until(5 * time.Second)
				t.Logf("%3.0f Mbit/s, %d of 9 peers %5v away: used %.3f, threshold %d, lost %d", mbit, n, far, used, r.most, r.link.lost)
				require.Zero(t, r.link.lost)
			}
		}
	}
}
