package main

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/gateway"
)

// proxyStats are what a proxy counts.
type proxyStats struct {
	client  cache.Stats
	gateway gateway.Stats
}

var proxyMetrics = []metric[proxyStats]{
	gauge("connected", "1 with a connection to the server.", func(s *proxyStats) float64 { return truth(s.client.Connected) }),
	gauge("rdma", "1 while hits are READs; 0 without a connection, or with one by TCP.", func(s *proxyStats) float64 { return truth(s.client.Transport == cache.RDMA) }),
	gauge("connections", "Programs that are connected.", func(s *proxyStats) float64 { return float64(s.gateway.Connections) }),
	gauge("map_entries", "Entries of the map.", func(s *proxyStats) float64 { return float64(s.client.Entries) }),
	gauge("map_bytes", "Memory of the map.", func(s *proxyStats) float64 { return float64(s.client.MapBytes) }),
	counter("read_hits", "Hits by READs alone.", func(s *proxyStats) float64 { return float64(s.client.Hits) }),
	counter("forwarded", "Hits to which the tombstone of an older record led.", func(s *proxyStats) float64 { return float64(s.client.Forwarded) }),
	counter("probes", "Keys that READs of the server's map answered, hits and misses.", func(s *proxyStats) float64 { return float64(s.client.Probes) }),
	counter("reads", "READs.", func(s *proxyStats) float64 { return float64(s.client.Reads) }),
	counter("reads_refused", "READs of what was no longer, or not yet, what the map said.", func(s *proxyStats) float64 { return float64(s.client.Refused) }),
	counter("calls", "Messages to the server.", func(s *proxyStats) float64 { return float64(s.client.Calls) }),
	counter("misses", "Gets of keys that have no record.", func(s *proxyStats) float64 { return float64(s.client.Misses) }),
	counter("sessions", "Connections to the server, one after the other.", func(s *proxyStats) float64 { return float64(s.client.Sessions) }),
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// proxyWeb serves Prometheus, and requests for the health of the connection to the server.
func proxyWeb(client *cache.Client, g *gateway.Server, log *slog.Logger) http.Handler {
	r := prometheus.NewRegistry()
	each := func(f func(string, *proxyStats)) { f("", &proxyStats{client.Stats(), g.Stats()}) }
	r.MustRegister(newCollector("rdmacached_proxy_", proxyMetrics, "", each), gatewayCollector(g), shortages(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !client.Stats().Connected {
			http.Error(w, "no connection to the server", http.StatusServiceUnavailable)
			return
		}
		if _, err := fmt.Fprintln(w, "ok"); err != nil {
			log.Debug("nobody took the health", "error", err)
		}
	})
	return mux
}
