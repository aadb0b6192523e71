package shaper

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// Whatever happens, Admit grants what Submit and Next would, and leaves what they would
// leave: two shapers are used alike but for that. And one of them is not told the time of
// completions for which that makes no difference, nor of requests that complete at once.
func TestAdmitIsSubmitAndNext(t *testing.T) {
	seed := testseed.New(t)
	direct, rounds := 0, 50
	if !testing.Short() {
		rounds = 600
	}
	for round := range rounds {
		direct += twins(t, rand.New(rand.NewPCG(seed, uint64(round))))
	}
	require.Greater(t, direct, 10*rounds)
}

func twins(t *testing.T, rng *rand.Rand) (direct int) {
	cfg := randomConfig(rng)
	var both [2]*Shaper
	for i := range both {
		s, err := New(cfg)
		require.NoError(t, err)
		both[i] = s
		s.firstGen = both[0].firstGen
	}
	var flows []Flow
	for range 1 + rng.IntN(4) {
		fc := FlowConfig{Weight: 1 + rng.IntN(3), Priority: rng.IntN(3), MaxReads: 1 + rng.IntN(16), Depth: 1 + rng.IntN(20)}
		for i, s := range both {
			f, err := s.AddFlow(fc)
			require.NoError(t, err)
			if i == 0 {
				flows = append(flows, f)
			}
		}
	}
	var now time.Duration
	var out []Sub
	var alive []Request
	paused, down := false, false
	for step := range 200 {
		now += time.Duration(rng.IntN(500)) * time.Microsecond
		var granted [2][]Grant
		f, what := flows[rng.IntN(len(flows))], rng.IntN(20)
		pick := rng.IntN(1 << 20)
		c := Command{Kind: Kind(rng.IntN(3)), Length: []int{0, 8, 300, 1000, 5000, 20000}[rng.IntN(6)], Class: rng.IntN(2), Fence: rng.IntN(8) == 0, Whole: rng.IntN(4) == 0}
		var made [2]Request
		goesOn, all, atOnce := rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(3) == 0
		for i, s := range both {
			if paused && goesOn {
				s.Pause(false)
			}
			if down && goesOn {
				for _, f := range flows {
					s.Up(f)
				}
			}
			switch {
			case what < 8:
				var err error
				if i == 1 && !atOnce {
					made[i], err = s.Submit(f, c, now)
					require.NoError(t, err)
					break
				}
				at := now
				if i == 0 && s.Instant() {
					at = 0
				}
				var sub Sub
				var ok bool
				made[i], sub, ok, err = s.Admit(f, c, at)
				require.NoError(t, err)
				switch {
				case ok && atOnce:
					s.Completed(sub, at)
				case at == 0:
					s.Began(made[i], sub, now)
				}
				if ok && !atOnce {
					granted[i] = append(granted[i], whole(f, made[i], sub, c))
					direct++
				}
			case what < 15 && all:
				for _, sub := range out {
					completed(s, sub, now, i == 0)
				}
			case what < 15 && len(out) > 0:
				completed(s, out[pick%len(out)], now, i == 0)
			case what == 15 && len(out) > 0:
				s.Failed(out[pick%len(out)], pick%3 == 0)
			case what == 16:
				s.Down(f)
			case what == 17:
				s.Pause(true)
			case what == 18 && len(alive) > 0:
				s.Cancel(alive[pick%len(alive)])
			}
			for g, ok := s.Next(now); ok; g, ok = s.Next(now) {
				granted[i] = append(granted[i], g)
			}
		}
		require.Equal(t, granted[1], granted[0], "step %d", step)
		require.Equal(t, made[1], made[0])
		if what < 8 {
			alive = append(alive, made[0])
		}
		paused, down = paused && !goesOn || what == 17, down && !goesOn || what == 16
		if what >= 8 && what < 15 && all {
			out = out[:0]
		} else if what >= 8 && what < 16 && len(out) > 0 {
			out = append(out[:pick%len(out)], out[pick%len(out)+1:]...)
		}
		for _, g := range granted[0] {
			out = append(out, g.Sub)
		}
		for {
			r, _, complete, ok := both[0].Finished()
			r1, _, complete1, ok1 := both[1].Finished()
			require.Equal(t, []any{r, complete, ok}, []any{r1, complete1, ok1})
			if !ok {
				break
			}
			both[0].Free(r)
			both[1].Free(r)
			for i := range alive {
				if alive[i] == r {
					alive = append(alive[:i], alive[i+1:]...)
					break
				}
			}
		}
		a, b := both[0], both[1]
		require.Equal(t, b.Stats(), a.Stats(), "step %d", step)
		require.Equal(t, []int64{b.Outstanding(), b.Sending(), int64(b.alive), b.Threshold(), int64(b.wake)}, []int64{a.Outstanding(), a.Sending(), int64(a.alive), a.Threshold(), int64(a.wake)}, "step %d", step)
		for _, s := range both { // a bucket without a rate needs no time
			s.in.refill(now)
			s.out.refill(now)
		}
		require.Equal(t, []bucket{b.in, b.out}, []bucket{a.in, a.out})
		require.Equal(t, b.classes, a.classes, "step %d", step)
		for _, f := range flows {
			require.Equal(t, b.flows[f].deficit, a.flows[f].deficit)
			require.Equal(t, b.flows[f].seq, a.flows[f].seq)
			require.Equal(t, b.flows[f].posted, a.flows[f].posted)
		}
	}
	return direct
}

// completed tells a shaper of a completion, and of its time unless that is left out.
func completed(s *Shaper, sub Sub, now time.Duration, leftOut bool) {
	if leftOut && s.Timeless(sub) {
		now = 0
	}
	s.Completed(sub, now)
}

// The time of a completion matters if others wait for its credit or are under way in its flow, and
// if the threshold is found.
func TestTimeless(t *testing.T) {
	for _, tunes := range []bool{false, true} {
		s, err := New(Config{Threshold: 64 << 10, Slice: -1, Tune: tunes})
		require.NoError(t, err)
		f, err := s.AddFlow(FlowConfig{})
		require.NoError(t, err)
		get := func(n int) Sub {
			_, sub, _, err := s.Admit(f, Command{Kind: Get, Length: n}, 1)
			require.NoError(t, err)
			return sub
		}
		first := get(1000)
		require.Equal(t, !tunes, s.Timeless(first), "alone")
		require.False(t, s.Timeless(first+1), "of none")
		second := get(1000)
		require.False(t, s.Timeless(first), "another is under way")
		s.Completed(first, 2)
		require.Equal(t, !tunes, s.Timeless(second))
		get(128 << 10)
		require.False(t, s.Timeless(second), "another waits")
	}
}

// whole is what a driver posts of a request that Admit lets go.
func whole(f Flow, r Request, sub Sub, c Command) Grant {
	g := Grant{Sub: sub, Request: r, Flow: f, Kind: c.Kind, Length: c.Length, First: true}
	if c.Kind == Atomic {
		g.Length = 8
	}
	return g
}

// A flow that was due and is cancelled is waited for no more.
func TestAdmitAfterWhoWasDue(t *testing.T) {
	s, err := New(Config{Outbound: 1, OutBurst: 10000, MaxPasses: 1})
	require.NoError(t, err)
	large, err := s.AddFlow(FlowConfig{})
	require.NoError(t, err)
	other, err := s.AddFlow(FlowConfig{})
	require.NoError(t, err)
	put := func(f Flow, n int) (r Request, granted bool) {
		r, _, granted, err := s.Admit(f, Command{Kind: Put, Length: n}, 0)
		require.NoError(t, err)
		if !granted {
			_, granted = s.Next(0)
		}
		return r, granted
	}
	_, granted := put(other, 5000)
	require.True(t, granted)
	held, granted := put(large, 8000)
	require.False(t, granted)
	_, granted = put(other, 100) // passes it over, once too often
	require.True(t, granted)
	s.Cancel(held)
	require.Zero(t, s.pending)
	_, _, granted, err = s.Admit(other, Command{Kind: Put, Length: 100}, 0)
	require.NoError(t, err)
	require.True(t, granted)
}
