package main

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cacheprom"
	"github.com/goverbs/goverbs/cache/gateway"
)

// proxyWeb serves Prometheus, and requests for the health of the connection to the server.
func proxyWeb(client *cache.Client, g *gateway.Server, log *slog.Logger) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(cacheprom.New(client), gatewayCollector(g), shortages(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !client.Stats().Connected {
			http.Error(w, "no connection to the server", http.StatusServiceUnavailable)
			return
		}
		if _, err := fmt.Fprintln(w, "ok"); err != nil {
			log.Debug("the health was not read", "error", err)
		}
	})
	return mux
}
