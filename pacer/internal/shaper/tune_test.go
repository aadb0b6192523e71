package shaper

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pipe is a link with a rate in front of the requester: what it serves one by one.
type pipe struct {
	rate float64 // bytes in a second
	base time.Duration
	busy time.Duration
	sent int64
	late func() time.Duration // until this host sees what came; nil means at once
	last time.Duration
}

func (p *pipe) take(now time.Duration, wire int64) (at time.Duration) {
	p.busy = max(p.busy, now+p.base) + time.Duration(float64(wire)/p.rate*float64(time.Second))
	p.sent += wire
	if p.late == nil {
		return p.busy
	}
	p.last = max(p.last, p.busy+p.late())
	return p.last
}

// through runs flows that always want more through a pipe until a time, and returns
// the part of the link that was used.
func through(b *bench, p *pipe, until time.Duration) float64 {
	type flight struct {
		g  Grant
		at time.Duration
	}
	var out []flight
	begin := b.now
	from := p.sent
	c := b.s.Config()
	for b.now < until {
		for g, ok := b.next(); ok; g, ok = b.next() {
			out = append(out, flight{g, p.take(b.now, c.RspPktLen(g.Length))})
		}
		if at, ok := b.s.Wake(); len(out) == 0 || ok && at < out[0].at {
			require.True(b.t, ok, "nothing is under way, and nothing goes")
			b.now = at
			continue
		}
		b.now = out[0].at
		b.done(out[0].g)
		out = out[1:]
	}
	for _, f := range out {
		b.now = f.at
		b.done(f.g)
	}
	return float64(p.sent-from) / (p.rate * (b.now - begin).Seconds())
}

// The tuner fills links of all rates from a cold start, keeps what waits in front of
// them short, and follows a change of the rate.
func TestTunerFindsTheThreshold(t *testing.T) {
	for _, base := range []time.Duration{10 * time.Microsecond, time.Millisecond} {
		for _, mbit := range []float64{20, 80, 1000, 25000} {
			b := newBench(t, Config{Tune: true, Header: 66}, FlowConfig{}, FlowConfig{})
			b.get(0, 1<<40)
			b.get(1, 1<<40)
			p := &pipe{rate: mbit / 8 * 1e6, base: base}
			span := 4 * time.Second
			if mbit > 1000 {
				span = 300 * time.Millisecond
			}
			through(b, p, span/4)
			require.Greater(t, through(b, p, span), 0.93, "%v Mbit/s, %v", mbit, base)
			bdp := p.rate * base.Seconds()
			require.Less(t, float64(b.s.Threshold()), bdp*1.6+4.5*16*kib, "%v Mbit/s, %v: what waits", mbit, base)
			if mbit > 80 {
				continue
			}
			for _, change := range []float64{4, 0.25} {
				p.rate *= change
				through(b, p, b.now+2*time.Second)
				require.Greater(t, through(b, p, b.now+time.Second), 0.9, "%v Mbit/s * %v, %v", mbit, change, base)
				require.Less(t, float64(b.s.Threshold()), p.rate*base.Seconds()*1.6+4.5*16*kib)
			}
		}
	}
}

// A host that is busy sees responses late, now more and now less: the link goes on
// meanwhile.
func TestTunerAndABusyHost(t *testing.T) {
	for mbit, want := range map[float64]float64{20: 0.97, 40: 0.96, 80: 0.84} {
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBench(t, Config{Tune: true, Header: 66}, FlowConfig{}, FlowConfig{})
			b.get(0, 1<<40)
			b.get(1, 1<<40)
			p := &pipe{rate: mbit / 8 * 1e6, base: 300 * time.Microsecond, late: func() time.Duration { return time.Duration(rng.ExpFloat64() * 2e6) }}
			through(b, p, time.Second)
			require.Greater(t, through(b, p, 6*time.Second), want, "%v Mbit/s", mbit)
		}
	}
}

// A path that became longer is seen, and filled.
func TestTunerFollowsTheDelay(t *testing.T) {
	b := newBench(t, Config{Tune: true, Header: 66}, FlowConfig{}, FlowConfig{})
	b.get(0, 1<<40)
	b.get(1, 1<<40)
	p := &pipe{rate: 10e6, base: time.Millisecond}
	through(b, p, time.Second)
	p.base = 20 * time.Millisecond
	through(b, p, b.now+2500*time.Millisecond)
	require.Greater(t, through(b, p, b.now+time.Second), 0.85)
	p.base = time.Millisecond
	through(b, p, b.now+3*time.Second)
	require.Less(t, float64(b.s.Threshold()), p.rate*p.base.Seconds()*1.6+4.5*16*kib)
}

// What was sent before a threshold changed says nothing about the new one: neither does
// it shrink once more by that, nor grow.
func TestTunerJudgesByWhatIsNew(t *testing.T) {
	c, err := Config{Tune: true, Threshold: 1 << 20}.WithDefaults()
	require.NoError(t, err)
	var u tuner
	u.begin(&c, false)
	u.base, u.renewed, u.round = time.Millisecond, time.Second, time.Second
	now := time.Second
	sample := func(granted time.Duration) {
		now += 100 * time.Microsecond
		u.filled = true
		u.sample(&sub{wire: u.one, granted: granted}, now, false)
	}
	for u.window == 1<<20 {
		sample(now - 40*time.Millisecond)
		require.Less(t, now, 2*time.Second)
	}
	shrunk := u.window
	require.Less(t, shrunk, int64(1<<20))
	require.Greater(t, shrunk, 2*u.least())
	for range 200 {
		sample(u.round)
	}
	require.Equal(t, shrunk, u.window)
	for range 600 {
		sample(now - 40*time.Millisecond)
	}
	require.Less(t, u.window, shrunk)
	for grown := u.window; u.window <= grown; sample(now - 500*time.Microsecond) {
		grown = u.window
		require.Less(t, now, 2*time.Second)
	}
	grown := u.window
	for range 200 {
		sample(u.round - time.Nanosecond)
	}
	require.Equal(t, grown, u.window)
}

// Small requests alone do not keep the tuner measuring, nor do those that are shorter
// than a sub-request, and a threshold that does not hold anything does not grow.
func TestTunerWithoutLoad(t *testing.T) {
	b := newBench(t, Config{Tune: true, TuneMax: 1 << 30}, FlowConfig{})
	before := b.s.Threshold()
	for range 20000 {
		b.get(0, 4*kib)
		b.get(0, 64)
		g, ok := b.next()
		require.True(t, ok)
		h, ok := b.next()
		require.True(t, ok)
		b.now += 100 * time.Microsecond
		b.done(g)
		b.done(h)
	}
	require.Zero(t, b.s.tune.probing)
	require.GreaterOrEqual(t, b.s.Stats().Probes, uint64(2))
	require.LessOrEqual(t, b.s.Threshold(), before)
}

// An interface that could not absorb what came has half as much outstanding at once, and
// finds the threshold anew.
func TestFloodedHalvesTheThreshold(t *testing.T) {
	b := newBench(t, Config{Tune: true, Header: 66}, FlowConfig{}, FlowConfig{})
	b.get(0, MaxLength)
	b.get(1, MaxLength)
	p := &pipe{rate: 1e9, base: 100 * time.Microsecond}
	through(b, p, 2500*time.Millisecond)
	before := b.s.tune.window
	require.Greater(t, before, 2*b.s.tune.least())
	b.s.Congested(b.now)
	require.Equal(t, before/2, b.s.tune.window)
	through(b, p, b.now+500*time.Millisecond)
	require.Greater(t, b.s.tune.window, 3*before/4)
	for range 100 {
		b.s.Congested(b.now)
	}
	require.Equal(t, b.s.tune.least(), b.s.tune.window)
	require.EqualValues(t, 101, b.s.Stats().Floods)
}

// Credit that a program keeps, or that waits for a dead peer, stops the others for the time
// of one probe, and says nothing about the path when it comes back.
func TestTunerAndCreditThatIsKept(t *testing.T) {
	for _, c := range []struct {
		patient bool
		overdue time.Duration
	}{{true, 0}, {false, -1}, {false, 0}, {false, 2 * probeTime}} {
		b := newBench(t, Config{Tune: true, Header: 66, Overdue: c.overdue}, FlowConfig{}, FlowConfig{}, FlowConfig{Patient: c.patient})
		b.get(2, 16*kib)
		kept, ok := b.next()
		require.True(t, ok)
		b.get(0, MaxLength)
		b.get(1, MaxLength)
		p := &pipe{rate: 10e6, base: time.Millisecond}
		require.Greater(t, through(b, p, 2*probeTime), 0.4)
		require.Greater(t, through(b, p, 5*time.Second), 0.93)
		require.Greater(t, b.s.Stats().Probes, uint64(3))
		require.Equal(t, b.s.Outstanding(), b.s.lent+b.s.stranded)
		b.done(kept)
		require.Less(t, b.s.tune.base, 5*time.Millisecond)
		require.Greater(t, through(b, p, 10*time.Second), 0.93)
		require.Less(t, b.s.tune.base, 5*time.Millisecond)
		require.Zero(t, b.s.stranded)
	}
}

// While the threshold doubles it keeps to the largest one, and an interface that is flooded
// ends the doubling.
func TestTunerStarts(t *testing.T) {
	b := newBench(t, Config{Tune: true, Header: 66, TuneMax: 200 * kib}, FlowConfig{}, FlowConfig{})
	b.get(0, MaxLength)
	b.get(1, MaxLength)
	through(b, &pipe{rate: 1e9, base: time.Millisecond}, 300*time.Millisecond)
	require.True(t, b.s.tune.starting)
	require.EqualValues(t, 200*kib, b.s.Threshold())
	b.s.Congested(b.now)
	require.EqualValues(t, 100*kib, b.s.Threshold())
	require.False(t, b.s.tune.starting)
}
