// Package cache is the suite of package cache: hits beside perftest's READ, and beside
// memcached over TCP on the same wire. Servers are processes of their own.
package cache

import (
	"context"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
)

var instructions = []string{harness.Instructions}

const (
	getBlock = 300
	keySize  = 16
	header   = 64 // of a record
)

// Suite compares the cache with a bare READ and with memcached.
func Suite(harness.Env) []harness.Benchmark {
	ours, theirs, others := rig.Lazy(newServed), rig.Lazy(newMemcached), rig.Lazy(newRedis)
	polled := func(size int) harness.Pass {
		return ours.Pass(func(s *served, ctx context.Context) (float64, error) { return s.gets(ctx, s.client, size) })
	}
	list := []harness.Benchmark{
		beside("get_64B", 1.15, polled(64), 64),
		beside("get_1KiB", 1.15, polled(1024), 1024),
		beside("get_64B_event", 1.5, ours.Pass(func(s *served, ctx context.Context) (float64, error) {
			c, err := s.parked()
			if err != nil {
				return 0, err
			}
			return s.gets(ctx, c, 64)
		}), 64),
	}
	list = append(list, harness.Compare(harness.Figure{Name: "get_64B_polling", Unit: "us"}, []string{harness.Wall},
		ours.Pass(func(s *served, ctx context.Context) (float64, error) {
			c, err := s.busy()
			if err != nil {
				return 0, err
			}
			return s.gets(ctx, c, 64)
		}), harness.Side{Name: "parks at once", Run: polled(64)}))
	for _, row := range []struct {
		name  string
		size  int
		limit float64
	}{{"get_64B_vs_memcached", 64, 0.2}, {"get_1KiB_vs_memcached", 1024, 0.2}, {"get_16KiB_vs_memcached", 16 << 10, 0.67}} {
		// The bare READ bounds what any cache could reach.
		const read = "ib_read_lat"
		list = append(list, harness.Benchmark{Name: row.name, Judged: harness.Both,
			Sides: []harness.Side{{Name: "ours", Run: polled(row.size)}, {Name: read, Run: perftest(row.size)}, {Name: tcp,
				Run: theirs.Pass(func(m *memcached, _ context.Context) (float64, error) { return m.gets(row.size) })}},
			Figures: []harness.Figure{
				{Name: row.name, Unit: "us", Of: "ours", Baseline: tcp, Target: measure.AtMost(row.limit)},
				{Name: strings.Replace(row.name, "get", "bare_read", 1), Unit: "us", Of: read, Baseline: tcp},
			}})
		redis := others.Pass(func(r *redis, _ context.Context) (float64, error) { return r.gets(row.size) })
		list = append(list, harness.Compare(harness.Figure{Name: strings.Replace(row.name, "memcached", "redis", 1), Unit: "us"}, harness.Both,
			polled(row.size), harness.Side{Name: overRedis, Run: redis}))
	}
	list = append(list, multi("multiget32", 2, harness.Both, ours, func(p harness.Pass) harness.Pass { return p }))
	if lab.In() { // a device of its own has no wire that could be delayed
		list = append(list, multi("multiget32_delay", 15, []string{harness.Wall}, ours, rig.Late))
	}
	list = append(list, bareMulti(), setMulti(), bucketRead(), bucketMulti(), throughInitiator(), proxyGet(theirs), serverCPU(ours, theirs), mapMemory(), storedMemoryRow(), connectionMemory())
	list = append(list, long()...)
	return append(list, ycsb()...)
}

func serverCPU(ours *rig.Once[*served], theirs *rig.Once[*memcached]) harness.Benchmark {
	const gets = 20 * getBlock // long enough for what the server does now and then
	f := harness.Figure{Name: "server_cpu_per_get", Unit: "us", Target: measure.AtMost(0.01)}
	return harness.Compare(f, harness.Both, ours.Pass(func(s *served, ctx context.Context) (float64, error) {
		return s.perGet(gets, func() error { _, err := s.gets(ctx, s.client, 64); return err })
	}), harness.Side{Name: tcp, Run: theirs.Pass(func(m *memcached, _ context.Context) (float64, error) {
		return m.perGet(gets, func() error { _, err := m.gets(64); return err })
	})})
}

// multi compares one call for many keys with a call for each.
func multi(name string, target float64, judged []string, ours *rig.Once[*served], on func(harness.Pass) harness.Pass) harness.Benchmark {
	f := harness.Figure{Name: name, Unit: "key/s", Target: measure.AtLeast(target)}
	return harness.Compare(f, judged, on(ours.Pass((*served).together)), harness.Side{Name: "single GETs", Run: on(ours.Pass((*served).oneByOne))})
}

func mapMemory() harness.Benchmark {
	b := harness.Plain(harness.Figure{Name: "map_bytes_per_entry", Unit: "bytes", Target: measure.AtMost(32)}, instructions, mapBytes)
	b.Figures = append(b.Figures, harness.Figure{Name: "map_bytes_per_entry_said", Unit: "bytes", Of: "ours", Value: 1})
	return b
}

func connectionMemory() harness.Benchmark {
	f := harness.Figure{Name: "server_bytes_per_connection", Unit: "bytes", Target: measure.AtMost(64 << 10)}
	b := harness.Plain(f, instructions, connectionBytes)
	b.Figures = append(b.Figures, harness.Figure{Name: "server_bytes_per_connection_garbage_too", Unit: "bytes", Of: "ours", Value: 1})
	return b
}

const tcp = "memcached over TCP"

// beside compares GETs with perftest's READs.
func beside(name string, limit float64, ours harness.Pass, size int) harness.Benchmark {
	f := harness.Figure{Name: name, Unit: "us", Target: measure.AtMost(limit)}
	return harness.Compare(f, instructions, ours, harness.Side{Name: "ib_read_lat", Run: perftest(size)})
}

// perftest READs as many bytes as the record of a value of that size has.
func perftest(size int) harness.Pass {
	return rig.Perftest("ib_read_lat", rig.LatTypical, []string{"-s", strconv.Itoa(header + keySize + size), "-n", "500"})
}

// Roles are what passes run as processes of their own.
var Roles = map[string]rig.Role{serverRole: serve, smallRole: serveSmall, busyRole: serveBusy, throughRole: serveThrough, proxyRole: proxy, gatewayRole: serveGateway, localProxyRole: serveLocalProxy}
