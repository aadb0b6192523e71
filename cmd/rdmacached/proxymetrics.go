package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cacheprom"
	"github.com/goverbs/goverbs/cache/gateway"
)

// proxyWeb serves Prometheus, and requests for the health of the connections to the servers.
func proxyWeb(client *cache.Cluster, g *gateway.Server, log *slog.Logger) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(cacheprom.NewCluster(client), gatewayCollector(g), shortages(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !slices.ContainsFunc(client.Stats(), func(s cache.ServerStats) bool { return s.Connected }) {
			http.Error(w, "no connection to a server", http.StatusServiceUnavailable)
			return
		}
		if _, err := fmt.Fprintln(w, "ok"); err != nil {
			log.Debug("the health was not read", "error", err)
		}
	})
	return mux
}
