// Package cluster has the suite of clusters of cache servers (docs/cluster.md): processes of rdmacached, and a real etcd, over
// the simulated devices of a fabric (docs/simhca.md).
package cluster

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// Suite has what clusters promise. SIMHCA must name a fabric, and LD_PRELOAD simhca.so.
func Suite(e harness.Env) []harness.Benchmark {
	return []harness.Benchmark{
		of(e, "takeover", 1, (*fleet).killed,
			harness.Figure{Name: "takeover", Unit: "s", Target: measure.AtMost(4.6), Worst: true},
			harness.Figure{Name: "takeover_beat", Unit: "ms", Value: 1}),
		of(e, "takeover_leader_dead", 3, (*fleet).killedWithLeader,
			harness.Figure{Name: "takeover_leader_dead", Unit: "s", Target: measure.AtMost(5.8), Worst: true}),
		of(e, "move", 1, (*fleet).moved,
			harness.Figure{Name: "move_misses", Unit: "operations", Target: measure.AtMost(0), Worst: true},
			harness.Figure{Name: "move_failed", Unit: "operations", Value: 1, Target: measure.AtMost(0), Worst: true},
			harness.Figure{Name: "move_p99", Unit: "ms", Value: 2, Target: measure.AtMost(50)},
			harness.Figure{Name: "move_rate", Unit: "of before", Value: 3, Target: measure.AtLeast(0.8)}),
		of(e, "etcd_stopped", 1, (*fleet).withoutEtcd,
			harness.Figure{Name: "etcd_stopped_misses", Unit: "operations", Target: measure.AtMost(0), Worst: true},
			harness.Figure{Name: "etcd_stopped_failed", Unit: "operations", Value: 1, Target: measure.AtMost(0), Worst: true}),
		ports(e),
	}
}

// of is a benchmark of three members, and of an etcd of some, which all passes have together.
func of(e harness.Env, name string, etcds int, pass func(*fleet, context.Context) ([]float64, error), figures ...harness.Figure) harness.Benchmark {
	var f *fleet
	start := sync.OnceValue(func() (err error) {
		f, err = newFleet(e.Rdmacached, 201, etcds, servers)
		return err
	})
	for i := range figures {
		figures[i].Of = "ours"
	}
	run := func(ctx context.Context) ([]float64, error) {
		if err := start(); err != nil {
			return nil, err
		}
		return pass(f, ctx)
	}
	stop := func() error {
		if err := start(); err != nil {
			return err
		}
		return f.close()
	}
	return harness.Benchmark{Name: name, Sides: []harness.Side{{Name: "ours", Run: run}}, Figures: figures, Judged: []string{harness.Wall}, Close: stop}
}
