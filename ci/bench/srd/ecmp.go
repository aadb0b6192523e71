package srd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/srd"
)

// onLinks runs a pass between endpoints of 16 paths over four links.
func onLinks(f func(ctx context.Context, p *pair) ([]float64, error)) harness.Pass {
	return func(ctx context.Context) ([]float64, error) { return paired(ctx, srd.Config{Paths: 16}, f) }
}

// packets sends n messages, and returns how many packets each link had meanwhile.
func packets(ctx context.Context, p *pair, n int) ([]float64, error) {
	s, err := newStreamer(p.a, p.b.Addr(), 1024, 64)
	if err != nil {
		return nil, err
	}
	before, err := lab.PathPackets()
	if err != nil {
		return nil, err
	}
	if err := s.send(ctx, n); err != nil {
		return nil, err
	}
	after, err := lab.PathPackets()
	out := make([]float64, len(after))
	for i := range after {
		out[i] = float64(after[i] - before[i])
	}
	return out, errors.Join(err, s.q.Close())
}

func ecmp() []harness.Benchmark {
	used := harness.Plain(harness.Figure{Name: "ecmp_paths_used", Unit: "links", Target: measure.AtLeast(4)}, both,
		onLinks(func(ctx context.Context, p *pair) ([]float64, error) {
			all, err := packets(ctx, p, 2000)
			n := 0.0
			for _, k := range all {
				if k > 40 {
					n++
				}
			}
			return []float64{n}, err
		}))
	share := harness.Plain(harness.Figure{Name: "bad_path_share", Unit: "of the packets", Target: measure.AtMost(0.02)}, both,
		onLinks(func(ctx context.Context, p *pair) (v []float64, err error) {
			if err := lab.ImpairPath(1, lab.Impairment{Loss: 0.1}); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, lab.ClearPath(1)) }()
			for start := time.Now(); time.Since(start) < time.Second; {
				if _, err := packets(ctx, p, 200); err != nil {
					return nil, err
				}
			}
			all, err := packets(ctx, p, 3000)
			sum := 0.0
			for _, k := range all {
				sum += k
			}
			return []float64{all[1] / sum}, err
		}))
	return []harness.Benchmark{used, blackhole(), share}
}

// blackhole compares messages one by one while a link is dead with those while it is not:
// from 200 ms on; and how much longer the longest of all took than in the same time before.
func blackhole() harness.Benchmark {
	side := func(dead bool) harness.Pass {
		return onLinks(func(ctx context.Context, p *pair) (v []float64, err error) {
			b := make([]byte, small)
			var took []time.Duration
			during := func(d time.Duration) error {
				took = took[:0]
				for begin := time.Now(); time.Since(begin) < d; {
					start := time.Now()
					if err := p.a.Send(ctx, p.b.Addr(), b); err != nil {
						return err
					}
					took = append(took, time.Since(start))
				}
				slices.Sort(took)
				return nil
			}
			if err := during(500 * time.Millisecond); err != nil {
				return nil, err
			}
			if err := during(2200 * time.Millisecond); err != nil {
				return nil, err
			}
			before := took[len(took)-1]
			if dead {
				if err := lab.Blackhole(1); err != nil {
					return nil, err
				}
				defer func() { err = errors.Join(err, lab.ClearPath(1)) }()
			}
			if err := during(200 * time.Millisecond); err != nil {
				return nil, err
			}
			longest := took[len(took)-1]
			if err := during(2 * time.Second); err != nil {
				return nil, err
			}
			longest = max(longest, took[len(took)-1])
			return []float64{float64(took[len(took)*99/100]) / 1e3, float64(longest-before) / 1e6}, nil
		})
	}
	const healthy = "four links that work"
	return harness.Benchmark{Name: "blackhole", Judged: both,
		Sides: []harness.Side{{Name: "ours", Run: side(true)}, {Name: healthy, Run: side(false)}},
		Figures: []harness.Figure{
			{Name: "blackhole_p99", Unit: "us", Of: "ours", Baseline: healthy, Target: measure.AtMost(1.2)},
			{Name: "blackhole_longest", Unit: "ms more", Of: "ours", Value: 1, Target: measure.AtMost(25)},
		}}
}
