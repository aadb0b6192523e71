package cacheprom

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
)

var sample = cache.Stats{Hits: 5, NearHits: 3, Misses: 2, Sessions: 1, Connected: true, Transport: cache.RDMA, Whole: true, MapBytes: 4096,
	Latencies: []cache.Latency{{Operation: "read", Transport: "rdma"}}}

func TestCollector(t *testing.T) {
	sample.Latencies[0].Nanoseconds.Add(3000)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collect(func(f func(string, *cache.Stats)) {
		f("10.77.0.2:7481", &sample)
		f("10.77.0.3:7481", &cache.Stats{})
	}))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`connected{server="10.77.0.2:7481"} 1`,
		`connected{server="10.77.0.3:7481"} 0`,
		`near_hits_total{server="10.77.0.2:7481"} 3`,
		`transport{server="10.77.0.2:7481",transport="RDMA"} 1`,
		`transport{server="10.77.0.2:7481",transport="TCP"} 0`,
		`transport{server="10.77.0.3:7481",transport="RDMA"} 0`,
		`map_bytes{server="10.77.0.2:7481"} 4096`,
		`operation_seconds_bucket{operation="read",server="10.77.0.2:7481",transport="rdma",le="2.048e-06"} 0`,
		`operation_seconds_bucket{operation="read",server="10.77.0.2:7481",transport="rdma",le="4.096e-06"} 1`,
		`operation_seconds_sum{operation="read",server="10.77.0.2:7481",transport="rdma"} 3e-06`,
	} {
		require.Contains(t, w.Body.String(), "\ncache_client_"+line+"\n")
	}
	problems, err := promlint.New(w.Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
