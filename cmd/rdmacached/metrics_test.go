package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/cachestatus"
	"github.com/goverbs/goverbs/internal/prom"
)

// The names are such as Prometheus's own linter wants.
func TestNamesOfMetrics(t *testing.T) {
	g, err := gateway.New(gateway.Config{Store: &remote{}})
	require.NoError(t, err)
	used := server.Stats{
		Modes: map[string]int{server.ModeTCP: 1}, Sizes: []server.SizeRange{{UpTo: 128}}, Latencies: []server.Latency{{Operation: "get", Transport: "tcp"}},
	}
	for _, c := range []prometheus.Collector{
		prom.New("rdmacached_", slices.Concat(metrics, distributions), "tenant", func(f func(string, *server.Stats)) { f("red", &used) }),
		prom.New("rdmacached_", refused, "", func(f func(string, *server.Refused)) { f("", &server.Refused{}) }),
		gatewayCollector(g),
		memberCollector(&cluster.Member{}),
		shortages(),
	} {
		r := prometheus.NewRegistry()
		r.MustRegister(c)
		w := httptest.NewRecorder()
		promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		require.Contains(t, w.Body.String(), "\nrdmacached_")
		problems, err := promlint.New(w.Body).Lint()
		require.NoError(t, err)
		require.Empty(t, problems)
	}
}

// A daemon with only revoked tenants says that, and not that it has one server with nothing in it.
func TestStatusWithoutTenants(t *testing.T) {
	none, err := server.ListenTenants(t.Context(), "127.0.0.1:0", nil, nil)
	require.NoError(t, err)
	defer none.Close()
	d := &service{config: &config{}, rdma: none, tenants: none}
	w := httptest.NewRecorder()
	d.web().ServeHTTP(w, httptest.NewRequest(http.MethodGet, cachestatus.Path, nil))
	var s cachestatus.Status
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	require.NotNil(t, s.Tenants)
	require.Empty(t, s.Tenants)
}
