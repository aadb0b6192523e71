// Package cacheprom exports the statistics of cache clients to Prometheus. It is apart from package
// cache so that programs without Prometheus do not have it.
package cacheprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/internal/prom"
)

// New returns a collector of a client. The label "server" is the address of its server. Register it
// with another constant label where there are several that are no cluster:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"cache": "sessions"}, registry).MustRegister(cacheprom.New(client))
func New(c *cache.Client) prometheus.Collector {
	return collect(func(f func(string, *cache.Stats)) {
		st := c.Stats()
		f(c.Address(), &st)
	})
}

// NewCluster returns a collector of the clients of a cluster. The label "server" tells them apart.
func NewCluster(c *cache.Cluster) prometheus.Collector {
	return collect(func(f func(string, *cache.Stats)) {
		for _, st := range c.Stats() {
			f(st.Address, &st.Stats)
		}
	})
}

func collect(each func(func(server string, s *cache.Stats))) prometheus.Collector {
	return prom.New("cache_client_", metrics, "server", each)
}

var metrics = []prom.Metric[cache.Stats]{
	prom.Gauge("connected", "1 with a connection to the server.", func(s *cache.Stats) float64 { return truth(s.Connected) }),
	prom.Gauges("transport", "1 for the transport of the connection.", []string{"transport"}, func(s *cache.Stats, put prom.Put) {
		for _, t := range []cache.Transport{cache.RDMA, cache.DC, cache.TCP} {
			put(truth(s.Transport == t), string(t))
		}
	}),
	prom.Gauge("map_whole", "1 with an entry for every record.", func(s *cache.Stats) float64 { return truth(s.Whole) }),
	prom.Gauge("map_entries", "Entries of the map.", func(s *cache.Stats) float64 { return float64(s.Entries) }),
	prom.Gauge("map_bytes", "Memory of the map.", func(s *cache.Stats) float64 { return float64(s.MapBytes) }),
	prom.Count("sessions", "Connections to the server, one after the other.", func(s *cache.Stats) uint64 { return s.Sessions }),
	prom.Count("read_hits", "Gets that READs alone found.", func(s *cache.Stats) uint64 { return s.Hits }),
	prom.Count("near_hits", "Gets that returned a copy.", func(s *cache.Stats) uint64 { return s.NearHits }),
	prom.Count("probes", "Keys that READs of the server's map settled, hits and misses.", func(s *cache.Stats) uint64 { return s.Probes }),
	prom.Count("forwarded", "Hits to which the tombstone of an older record led.", func(s *cache.Stats) uint64 { return s.Forwarded }),
	prom.Count("misses", "Gets of keys that have no record.", func(s *cache.Stats) uint64 { return s.Misses }),
	prom.Count("confirmed", "Keys without an entry in the map.", func(s *cache.Stats) uint64 { return s.Confirmed }),
	prom.Count("reads", "READs.", func(s *cache.Stats) uint64 { return s.Reads }),
	prom.Count("reads_refused", "READs that found something else than the map says.", func(s *cache.Stats) uint64 { return s.Refused }),
	prom.Count("reads_ungranted", "READs that did not count, since a server of a cluster had granted none any more.", func(s *cache.Stats) uint64 { return s.Ungranted }),
	prom.Count("grants", "Requests for leave to READ, of servers of a cluster.", func(s *cache.Stats) uint64 { return s.Grants }),
	prom.Count("reads_blocked", "READs through an initiator that failed.", func(s *cache.Stats) uint64 { return s.Blocked }),
	prom.Count("calls", "RPCs: requests to the server.", func(s *cache.Stats) uint64 { return s.Calls }),
	prom.Histograms("operation_seconds", "Times of operations: read is a get by READs alone, of which one in eight is timed and counts eight times, get one by an RPC.", prom.Latency, []string{"operation", "transport"},
		func(s *cache.Stats, put prom.PutHistogram) {
			for i := range s.Latencies {
				l := &s.Latencies[i]
				put(&l.Nanoseconds, l.Operation, l.Transport)
			}
		}),
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
