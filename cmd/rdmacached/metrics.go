package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/cachestatus"
	"github.com/goverbs/goverbs/internal/prom"
)

var metrics = []prom.Metric[server.Stats]{
	prom.Gauge("items", "Records.", func(s *server.Stats) float64 { return float64(s.Items) }),
	prom.Gauge("record_bytes", "Memory that records take.", func(s *server.Stats) float64 { return float64(s.Bytes) }),
	prom.Gauge("memory_bytes", "Memory for records.", func(s *server.Stats) float64 { return float64(s.Memory) }),
	prom.Gauge("quarantine_bytes", "Memory that was freed and that clients may still READ.", func(s *server.Stats) float64 { return float64(s.Quarantine) }),
	prom.Gauge("map_bytes", "Memory of the map.", func(s *server.Stats) float64 { return float64(s.Table) }),
	prom.Gauge("rdma_clients", "RDMA clients that are connected.", func(s *server.Stats) float64 { return float64(s.Clients) }),
	prom.Gauge("tcp_clients", "Clients that are connected by TCP, since they have no RDMA.", func(s *server.Stats) float64 { return float64(s.Streams) }),
	prom.Gauge("epoch", "The number of this life of the server.", func(s *server.Stats) float64 { return float64(s.Epoch) }),
	prom.Counter("calls_get", "Gets by RPC. Hits of RDMA clients are READs, which do not count.", func(s *server.Stats) float64 { return float64(s.Gets) }),
	prom.Counter("calls_get_hits", "Gets by RPC that found a record.", func(s *server.Stats) float64 { return float64(s.Hits) }),
	prom.Counter("calls_store", "RPCs that store a record.", func(s *server.Stats) float64 { return float64(s.Sets) }),
	prom.Counter("reads_reported", "READs that clients reported: a sample.", func(s *server.Stats) float64 { return float64(s.Reported) }),
	prom.Counter("evicted", "Records that were evicted.", func(s *server.Stats) float64 { return float64(s.Evicted) }),
	prom.Gauge("evicted_idle_seconds", "Time since the last access to the record that was evicted last.", func(s *server.Stats) float64 { return s.EvictedIdle.Seconds() }),
	prom.Counter("moved", "Records that were moved to make room for longer ones.", func(s *server.Stats) float64 { return float64(s.Moved) }),
	prom.Counter("expired", "Records that expired.", func(s *server.Stats) float64 { return float64(s.Expired) }),
	prom.Counter("flushes", "Times that everything was removed.", func(s *server.Stats) float64 { return float64(s.Flushes) }),
	prom.Counter("refused_memory", "Changes that were refused since all memory was in use or in quarantine.", func(s *server.Stats) float64 { return float64(s.NoMemory) }),
	prom.Counter("clients_cut", "RDMA clients that were cut off because they did not leave freed memory within the lease.", func(s *server.Stats) float64 { return float64(s.Cut) }),
	prom.Gauge("dc_clients", "RDMA clients that READ through the dynamically connected target.", func(s *server.Stats) float64 { return float64(s.DC.Clients) }),
	prom.Gauge("dc_clients_gone", "Clients that are not connected any more, and may READ through that target.", func(s *server.Stats) float64 { return float64(s.DC.Gone) }),
	prom.Gauge("dc_attached", "Contexts of clients' initiators that are attached to that target, if it is not the device's own.", func(s *server.Stats) float64 { return float64(s.DC.Attached) }),
	prom.Counter("dc_targets_replaced", "Times that there was another target, to cut off clients.", func(s *server.Stats) float64 { return float64(s.DC.Replaced) }),
}

var gatewayMetrics = []prom.Metric[gateway.Stats]{
	prom.Gauge("connections", "Connections that speak memcached's protocol.", func(s *gateway.Stats) float64 { return float64(s.Connections) }),
	prom.Counter("connections_accepted", "Connections since the start, with the rejected ones.", func(s *gateway.Stats) float64 { return float64(s.Total) }),
	prom.Counter("connections_rejected", "Connections above the limit, which were closed.", func(s *gateway.Stats) float64 { return float64(s.Rejected) }),
	prom.Counter("gets", "Keys that get commands asked for.", func(s *gateway.Stats) float64 { return float64(s.Gets) }),
	prom.Counter("get_hits", "Keys that get commands asked for and that had a record.", func(s *gateway.Stats) float64 { return float64(s.Hits) }),
	prom.Counter("password_errors", "Passwords that were wrong.", func(s *gateway.Stats) float64 { return float64(s.AuthErrors) }),
	prom.Counter("binary_refused", "Connections that used the binary protocol, which is refused.", func(s *gateway.Stats) float64 { return float64(s.Binary) }),
	prom.Counter("connections_idle", "Connections that were closed since they were silent for too long.", func(s *gateway.Stats) float64 { return float64(s.IdleKicks) }),
}

// distributions are the metrics that have several values.
var distributions = []prom.Metric[server.Stats]{
	prom.Gauges("clients", "Connected clients, by what they have of the map.", []string{"mode"}, func(s *server.Stats, put prom.Put) {
		for mode, n := range s.Modes {
			put(float64(n), mode)
		}
	}),
	prom.Gauges("size_range_items", "Records of up to up_to bytes that no lower range has, with header and key.", []string{"up_to"}, func(s *server.Stats, put prom.Put) {
		for _, z := range s.Sizes {
			put(float64(z.Records), strconv.Itoa(z.UpTo))
		}
	}),
	prom.Gauges("size_range_bytes", "Memory that those records take.", []string{"up_to"}, func(s *server.Stats, put prom.Put) {
		for _, z := range s.Sizes {
			put(float64(z.Bytes), strconv.Itoa(z.UpTo))
		}
	}),
	prom.Histograms("request_seconds", "Time from when a request was read to when its reply was queued.", prom.Latency, []string{"operation", "transport"},
		func(s *server.Stats, put prom.PutHistogram) {
			for i := range s.Latencies {
				l := &s.Latencies[i]
				put(&l.Nanoseconds, l.Operation, l.Transport)
			}
		}),
	prom.Histograms("evicted_age_seconds", "Time since the last access to records that were evicted.", prom.Age, nil, func(s *server.Stats, put prom.PutHistogram) { put(&s.EvictedAges) }),
}

// refused are the metrics of the address that RDMA clients connect to.
var refused = []prom.Metric[server.Refused]{
	prom.Counters("connections_refused", "Connections that did not become clients. denied: another key or tenant; full: the tenant has all its clients; silent: no greeting in time; crowded: a newer one took the place.",
		[]string{"cause"}, func(r *server.Refused, put prom.Put) {
			put(float64(r.Denied), "denied")
			put(float64(r.Full), "full")
			put(float64(r.Silent), "silent")
			put(float64(r.Crowded), "crowded")
			put(float64(r.Other), "other")
		}),
}

// gatewayCollector returns a collector of a gateway's metrics.
func gatewayCollector(g *gateway.Server) prometheus.Collector {
	return prom.New("rdmacached_gateway_", gatewayMetrics, "", func(f func(string, *gateway.Stats)) {
		st := g.Stats()
		f("", &st)
	})
}

// webServer serves HTTP. A client that sends no request, or reads no response, does not keep a
// connection for long: the cache's clients need files too.
func webServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
}

// web serves Prometheus, and requests for the daemon's health and status.
func (d *service) web() http.Handler {
	r, label := prometheus.NewRegistry(), ""
	if d.tenants != nil {
		label = "tenant"
	}
	each := func(f func(string, *server.Stats)) {
		d.each(func(tenant string, s *server.Server) {
			st := s.Stats()
			f(tenant, &st)
		})
	}
	r.MustRegister(prom.New("rdmacached_", slices.Concat(metrics, distributions), label, each), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(prom.New("rdmacached_", refused, "", func(f func(string, *server.Refused)) {
		n := d.rdma.Refused()
		f("", &n)
	}))
	if d.gateway != nil {
		r.MustRegister(gatewayCollector(d.gateway))
	}
	if d.member != nil {
		r.MustRegister(memberCollector(d.member))
	}
	r.MustRegister(shortages())
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if why := d.unready(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc(cachestatus.Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(d.status()); err != nil {
			d.log.Debug("the status was not read", "error", err)
		}
	})
	return mux
}

// hotKeys is how many of them are reported.
const hotKeys = 10

const stopping = "stopping"

// unready returns why the daemon does not serve, or nothing.
func (d *service) unready() string {
	if d.stopping.Load() {
		return stopping
	}
	if d.member != nil {
		if s := d.member.Status().State; s == cluster.Joining || s == cluster.Silent {
			return string(s)
		}
	}
	return ""
}

// status returns what rdmactl shows.
func (d *service) status() cachestatus.Status {
	s := cachestatus.Status{Listens: d.rdma.Addr().String(), State: "serving", Seconds: time.Since(d.begun).Seconds()}
	if d.tenants != nil {
		s.Tenants = []cachestatus.Tenant{} // also when all are revoked
	}
	d.each(func(tenant string, c *server.Server) {
		s.Device = c.Device()
		if tenant == "" {
			s.Server, s.Hot = c.Stats(), c.HotKeys(hotKeys)
			return
		}
		s.Tenants = append(s.Tenants, cachestatus.Tenant{Name: tenant, Server: c.Stats(), Hot: c.HotKeys(hotKeys)})
	})
	if d.stopping.Load() {
		s.State = stopping
	}
	s.Cluster = memberStatus(d.member)
	if d.gateway != nil {
		s.For = d.config.Gateway.Tenant
		s.Gateway, s.Commands = d.listener.Addr().String(), d.gateway.Stats()
	}
	return s
}
