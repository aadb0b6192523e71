package cache

import (
	"context"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// Processes compares a hit with one of a memcached on the same host.
func Processes() harness.Benchmark {
	ours, theirs := rig.Lazy(newServed), rig.Lazy(newLocalMemcached)
	f := harness.Figure{Name: "processes_cache_get_64B", Unit: "us", Target: measure.AtMost(0.2)}
	return harness.Compare(f, []string{harness.Wall},
		ours.Pass(func(s *served, ctx context.Context) (float64, error) { return s.gets(ctx, s.client, 64) }),
		harness.Side{Name: "memcached on a unix socket", Run: theirs.Pass(func(m *memcached, _ context.Context) (float64, error) { return m.gets(64) })})
}
