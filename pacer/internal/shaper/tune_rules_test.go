package shaper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const msec = time.Millisecond

// At the end of a round the threshold follows the mean delay: it shrinks in proportion, by half at most, if more
// than one and a half sub-requests wait, and grows otherwise, unless it held nothing.
func TestTunerJudges(t *testing.T) {
	for name, c := range map[string]struct {
		base, delay      time.Duration
		starting, filled bool
		window, want     int64
	}{
		"grows":                          {msec, 2 * msec, false, true, 32_000, 34_000},
		"doubles at first":               {msec, 2 * msec, true, true, 32_000, 64_000},
		"to the largest":                 {msec, 2 * msec, true, true, 64_000, 100_000},
		"grows to the largest":           {msec, 2 * msec, false, true, 99_000, 100_000},
		"at the goal":                    {msec, 2500 * time.Microsecond, false, true, 32_000, 34_000},
		"held nothing":                   {msec, 2 * msec, true, false, 32_000, 32_000},
		"too many wait":                  {msec, 3125 * time.Microsecond, true, true, 32_000, 25_600},
		"too many, and it held nothing":  {msec, 3125 * time.Microsecond, true, false, 32_000, 25_600},
		"by half":                        {msec, time.Second, false, true, 32_000, 16_000},
		"to the least":                   {msec, time.Second, false, true, 5_000, 3_500},
		"nothing was alone: no judgment": {0, time.Second, true, true, 32_000, 32_000},
	} {
		u := tuner{one: 1000, max: 100_000, window: c.window, base: c.base, starting: c.starting, filled: c.filled, from: time.Second, bytes: 10_000, count: 4, sum: 4 * c.delay}
		u.judge(time.Second + 10*msec)
		require.InDelta(t, c.want, u.window, 1, name)
		require.Equal(t, c.starting && (c.delay < 3*msec || c.base == 0), u.starting, name)
		require.EqualValues(t, 1e6, u.rate)
		u.bytes = 2000
		u.judge(time.Second + 10*msec)
		require.EqualValues(t, 8e5, u.rate, "it falls slowly")
	}
}

// A round begins with a sample, counts what was asked for in it, and ends when a threshold of that came after the
// first. Before it, and once a second, sub-requests are measured alone.
func TestTunerRounds(t *testing.T) {
	c, err := Config{MTU: 1000, Header: 1, Slice: 1000, Threshold: 4004, Reserve: 1, TuneMax: 8000}.WithDefaults()
	require.NoError(t, err)
	var u tuner
	u.begin(&c, false)
	require.EqualValues(t, []int64{1001, 8000, 4004}, []int64{u.one, u.max, u.window})
	require.True(t, u.starting)
	now := time.Second
	sample := func(granted time.Duration, alone, drained bool) {
		now += msec
		u.sample(&sub{wire: 1001, granted: granted, alone: alone}, now, drained)
	}
	sample(now, false, true)
	require.Zero(t, u.threshold())
	require.EqualValues(t, 1, u.probes)
	sample(now-2*msec, true, false)
	require.Zero(t, u.threshold(), "another one came with it")
	sample(now, true, true)
	require.Equal(t, msec, u.base)
	require.Zero(t, u.threshold())
	sample(now-2*msec, true, true)
	require.Equal(t, 2*msec, u.base, "the mean")
	require.EqualValues(t, 4004, u.threshold())
	require.Equal(t, now, u.round)

	u.filled = true
	sample(u.round, false, false)
	require.Zero(t, u.count, "it is of the round before")
	first := now + msec
	for i := range 4 {
		require.EqualValues(t, i, u.count)
		sample(first-msec/2, false, false)
	}
	require.Equal(t, first, u.from)
	require.EqualValues(t, 3*1001, u.bytes)
	sample(now, false, false)
	require.Equal(t, []any{now, int64(0), int64(0), time.Duration(0), false}, []any{u.round, u.bytes, u.count, u.sum, u.filled})
	require.EqualValues(t, 8000, u.window)

	now = u.renewed + period - 2*msec
	sample(now, false, false)
	require.NotZero(t, u.threshold())
	sample(now, false, false)
	require.Zero(t, u.threshold())
	require.EqualValues(t, 2, u.probes)
	require.Equal(t, now, u.renewed)
	sample(now-4*msec, true, true)
	require.Equal(t, 5*msec, u.base, "a new period")
	require.Less(t, u.round, now)
	sample(now, true, true)
	require.Equal(t, now, u.round)
}

// Responses that all come at one moment say nothing about the rate.
func TestTunerAndABurst(t *testing.T) {
	u := tuner{one: 1000, max: 100_000, window: 2000, base: msec, renewed: time.Second, round: time.Second, filled: true}
	for range 4 {
		u.sample(&sub{wire: 1000, granted: time.Second + 1}, time.Second+msec, false)
	}
	require.EqualValues(t, []int64{2000, 3000, 4}, []int64{u.window, u.bytes, u.count})
	u.sample(&sub{wire: 1000, granted: time.Second + 1}, time.Second+2*msec, false)
	require.EqualValues(t, []int64{3062, 0, 0}, []int64{u.window, u.bytes, u.count})
}

// A probe that something does not come back for ends after its time, and a round begins. What is outstanding then
// is waited for no more, but small requests and PUTs, and what is overdue.
func TestProbeThatEndsInVain(t *testing.T) {
	b := newBench(t, Config{Tune: true, Threshold: 1 << 20, Slice: -1, Overdue: -1}, FlowConfig{}, FlowConfig{}, FlowConfig{})
	b.get(0, 1000)
	b.get(0, 10)
	b.get(0, 1000, kind(Put))
	b.get(1, 2000)
	out := b.all()
	require.Len(t, out, 4)
	b.s.lend(&b.s.subs[out[1].Sub.place()])
	tune := &b.s.tune
	tune.renewed, tune.probing = time.Second, 1
	held := b.get(2, 1000)
	b.now = time.Second + probeTime - 1
	require.Empty(t, b.all())
	require.Equal(t, Threshold, b.explain(held))
	at, ok := b.s.Wake()
	require.True(t, ok)
	require.Equal(t, b.now+1, at)
	b.now++
	require.Len(t, b.all(), 1)
	require.Zero(t, tune.probing)
	require.Equal(t, b.now, tune.round)
	want := int64(0)
	for _, g := range out {
		if g.Kind == Get && g.Length > 512 && !b.s.subs[g.Sub.place()].lent {
			want += int64(g.Length) + 1
		}
	}
	require.Equal(t, want, b.s.stranded)
	for _, g := range out {
		b.done(g)
	}
	require.Zero(t, b.s.stranded)
	require.Zero(t, b.s.lent)
}

// Small responses tell the tuner nothing: they have a reserve of their own.
func TestTunerLeavesOutSmallOnes(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Tune: true, Small: 100}, FlowConfig{})
	for _, c := range []struct {
		length int
		probes uint64
	}{{100, 0}, {101, 1}} {
		b.get(0, c.length)
		g, ok := b.next()
		require.True(t, ok)
		b.now += time.Microsecond
		b.done(g)
		require.EqualValues(t, c.probes, b.s.Stats().Probes, "%d bytes", c.length)
	}
}

// The threshold that a tuner begins with is between the least and the largest; one that runs keeps its own.
func TestTunerBegins(t *testing.T) {
	for _, c := range []struct {
		cfg     Config
		running bool
		want    int64
	}{
		{Config{Threshold: 1}, false, 3503},
		{Config{Threshold: 6000}, false, 6000},
		{Config{Threshold: 1 << 20}, false, 10_000},
		{Config{Threshold: 1 << 20, TuneMax: 20_000}, true, 7000},
		{Config{Threshold: 6000, TuneMax: 4000}, true, 4000},
		{Config{Threshold: 6000, TuneMax: 1}, false, 2002},
	} {
		cfg := c.cfg
		cfg.MTU, cfg.Header, cfg.Slice, cfg.Reserve = 1000, 1, 1000, 1
		if cfg.TuneMax == 0 {
			cfg.TuneMax = 10_000
		}
		cfg, err := cfg.WithDefaults()
		require.NoError(t, err)
		u := tuner{window: 7000}
		u.begin(&cfg, c.running)
		require.Equal(t, c.want, u.window, "%+v", c)
		require.Equal(t, !c.running, u.starting)
	}
	whole, err := Config{Slice: -1}.WithDefaults()
	require.NoError(t, err)
	var u tuner
	u.begin(&whole, false)
	require.EqualValues(t, 16*kib+4*66, u.one)
}

// What an interface could not absorb begins a new round, of half the threshold.
func TestCongestedBeginsARound(t *testing.T) {
	b := newBench(t, Config{Tune: true, Threshold: 1 << 20}, FlowConfig{})
	b.s.tune.bytes, b.s.tune.count = 5, 6
	b.s.Congested(7)
	require.EqualValues(t, []int64{1 << 19, 0, 0, 7}, []int64{b.s.tune.window, b.s.tune.bytes, b.s.tune.count, int64(b.s.tune.round)})
	require.False(t, b.s.tune.starting)
	require.EqualValues(t, 1, b.s.Stats().Floods)
}
