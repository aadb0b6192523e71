package dc

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/dc"
)

const (
	// deadCount targets are gone; each always has a request that waits for it.
	deadCount = 100
	// liveWindow is how many requests to the others are under way.
	liveWindow = 64
	liveOps    = 3000
	// liveWarm requests come first and do not count, as warmOps of the rates: that
	// these targets are dead is known then. What it costs to find out is another
	// matter: until they have been silent once, each holds a context for 150 ms.
	liveWarm = 2000
)

// withDead compares what requests to 1,000 live targets take while others are
// asked for that are dead, and while they are not.
func withDead(many *rig.Once[*manyTargets]) harness.Benchmark {
	run := func(dead int) harness.Pass {
		return many.Pass(func(m *manyTargets, ctx context.Context) (float64, error) { return m.liveP99(ctx, dead) })
	}
	f := harness.Figure{Name: "live_p99_with_dead", Unit: "us", Target: measure.AtMost(3)}
	return harness.Compare(f, instructions, run(deadCount), harness.Side{Name: "no dead targets", Run: run(0)})
}

// liveP99 returns what the slowest hundredth of requests to live targets takes at
// least, in microseconds.
func (m *manyTargets) liveP99(ctx context.Context, dead int) (float64, error) {
	const toDead = 1 << 32
	rng := rand.New(rand.NewPCG(5, 6))
	r := dc.Request{Op: dc.Write, Local: m.c.MR.SGE(0, rig.ReadSize)}
	post := func(p *dc.Peer, id uint64) error {
		r.ID = id
		_, err := m.initiator.Post(p, r)
		return err
	}
	for k := range dead {
		r.Remote = m.at[0]
		if err := post(m.dead[k], toDead|uint64(k)); err != nil {
			return 0, err
		}
	}
	var begun [liveWindow]time.Time
	var free []uint64
	for k := range uint64(liveWindow) {
		free = append(free, k)
	}
	var took []time.Duration
	cs := make([]dc.Completion, 32)
	under, deadUnder, ended := 0, dead, 0
	const all = liveWarm + liveOps
	for ended < all || under+deadUnder > 0 {
		for len(free) > 0 && ended+under < all {
			slot := free[len(free)-1]
			free = free[:len(free)-1]
			target := rng.IntN(targetCount)
			r.Remote = m.at[target]
			begun[slot] = time.Now()
			if err := post(m.peers[target], slot); err != nil {
				return 0, err
			}
			under++
		}
		n, err := m.initiator.Wait(ctx, cs)
		if err != nil {
			return 0, err
		}
		for _, c := range cs[:n] {
			if c.ID&toDead == 0 {
				if c.Err != nil {
					return 0, c.Err
				}
				if ended++; ended > liveWarm {
					took = append(took, time.Since(begun[c.ID]))
				}
				free = append(free, c.ID)
				under--
				continue
			}
			if !errors.Is(c.Err, dc.ErrUnreachable) {
				return 0, errors.Join(errors.New("a dead target answered"), c.Err)
			}
			if deadUnder--; ended < all {
				if err := post(c.Peer, c.ID); err != nil {
					return 0, err
				}
				deadUnder++
			}
		}
	}
	slices.Sort(took)
	return float64(took[len(took)*99/100].Nanoseconds()) / 1000, nil
}
