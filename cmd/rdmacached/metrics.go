package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/cmd/internal/cachestatus"
)

// metric is a number of the server's, and how Prometheus is told of it.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*server.Stats) float64
}

func gauge(name, help string, of func(*server.Stats) float64) metric {
	return metric{prometheus.NewDesc("rdmacached_"+name, help, nil, nil), prometheus.GaugeValue, of}
}

func counter(name, help string, of func(*server.Stats) float64) metric {
	return metric{prometheus.NewDesc("rdmacached_"+name+"_total", help, nil, nil), prometheus.CounterValue, of}
}

var metrics = []metric{
	gauge("items", "Records.", func(s *server.Stats) float64 { return float64(s.Items) }),
	gauge("record_bytes", "Memory that records take.", func(s *server.Stats) float64 { return float64(s.Bytes) }),
	gauge("memory_bytes", "Memory for records.", func(s *server.Stats) float64 { return float64(s.Memory) }),
	gauge("quarantine_bytes", "Memory that was freed and that clients may still READ.", func(s *server.Stats) float64 { return float64(s.Quarantine) }),
	gauge("map_bytes", "Memory of the map.", func(s *server.Stats) float64 { return float64(s.Table) }),
	gauge("rdma_clients", "RDMA clients that are connected.", func(s *server.Stats) float64 { return float64(s.Clients) }),
	gauge("epoch", "The number of this life of the server.", func(s *server.Stats) float64 { return float64(s.Epoch) }),
	counter("calls_get", "Gets by call: hits of RDMA clients are none.", func(s *server.Stats) float64 { return float64(s.Gets) }),
	counter("calls_get_hits", "Gets by call that found a record.", func(s *server.Stats) float64 { return float64(s.Hits) }),
	counter("calls_store", "Calls that store a record.", func(s *server.Stats) float64 { return float64(s.Sets) }),
	counter("reads_reported", "READs that clients told of: a sample.", func(s *server.Stats) float64 { return float64(s.Reported) }),
	counter("evicted", "Records that were evicted.", func(s *server.Stats) float64 { return float64(s.Evicted) }),
	counter("expired", "Records that expired.", func(s *server.Stats) float64 { return float64(s.Expired) }),
	counter("flushes", "Times that everything was removed.", func(s *server.Stats) float64 { return float64(s.Flushes) }),
	counter("refused_memory", "Changes that were refused since all memory was in use or in quarantine.", func(s *server.Stats) float64 { return float64(s.NoMemory) }),
	counter("clients_cut", "RDMA clients that were cut off since they did not say how far they are.", func(s *server.Stats) float64 { return float64(s.Cut) }),
}

type collector struct{ s *server.Server }

// Describe is [prometheus.Collector]'s.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics {
		ch <- m.desc
	}
}

// Collect is [prometheus.Collector]'s.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	st := c.s.Stats()
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&st))
	}
}

// web answers Prometheus, and who asks whether the daemon runs.
func (d *service) web() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{d.cache}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if d.stopping.Load() {
			http.Error(w, stopping, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc(cachestatus.Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(d.status()); err != nil {
			d.log.Debug("nobody took the status", "error", err)
		}
	})
	return mux
}

const stopping = "stopping"

// status is what rdmactl shows.
func (d *service) status() cachestatus.Status {
	s := cachestatus.Status{
		Listens: d.cache.Addr().String(), Device: d.cache.Device(), State: "serving", Seconds: time.Since(d.begun).Seconds(),
		Server: d.cache.Stats(),
	}
	if d.stopping.Load() {
		s.State = stopping
	}
	if d.gateway != nil {
		s.Gateway, s.Commands = d.door.Addr().String(), d.gateway.Stats()
	}
	return s
}
