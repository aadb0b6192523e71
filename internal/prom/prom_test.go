package prom

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/histogram"
)

type stats struct {
	size, calls float64
	ages        histogram.Counts
}

var list = []Metric[stats]{
	Gauge("size", "A size.", func(s *stats) float64 { return s.size }),
	Counters("calls", "Calls.", []string{"kind"}, func(s *stats, put Put) {
		put(s.calls, "get")
		put(2*s.calls, "set")
	}),
	Histograms("age_seconds", "Ages.", Unit{Per: 1000, From: 8, To: 10}, nil, func(s *stats, put PutHistogram) { put(&s.ages) }),
}

func scrape(t *testing.T, c prometheus.Collector) string {
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(c))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

func TestCollector(t *testing.T) {
	s := stats{size: 7, calls: 3}
	for _, v := range []uint64{1, 255, 256, 1000, 1024, 5000} {
		s.ages.Add(v)
	}
	require.Equal(t, `# HELP x_age_seconds Ages.
# TYPE x_age_seconds histogram
x_age_seconds_bucket{le="0.256"} 2
x_age_seconds_bucket{le="0.512"} 3
x_age_seconds_bucket{le="1.024"} 4
x_age_seconds_bucket{le="+Inf"} 6
x_age_seconds_sum 7.536
x_age_seconds_count 6
# HELP x_calls_total Calls.
# TYPE x_calls_total counter
x_calls_total{kind="get"} 3
x_calls_total{kind="set"} 6
# HELP x_size A size.
# TYPE x_size gauge
x_size 7
`, scrape(t, New("x_", list, "", func(f func(string, *stats)) { f("", &s) })))
}

func TestCollectorOfSeveral(t *testing.T) {
	require.Equal(t, `# HELP x_calls_total Calls.
# TYPE x_calls_total counter
x_calls_total{kind="get",tenant="blue"} 1
x_calls_total{kind="get",tenant="red"} 0
x_calls_total{kind="set",tenant="blue"} 2
x_calls_total{kind="set",tenant="red"} 0
# HELP x_size A size.
# TYPE x_size gauge
x_size{tenant="blue"} 2
x_size{tenant="red"} 1
`, scrape(t, New("x_", list[:2], "tenant", func(f func(string, *stats)) {
		f("red", &stats{size: 1})
		f("blue", &stats{size: 2, calls: 1})
	})))
}

// One thing has no label of its own, and its statistics are those of the moment.
func TestCollectorOfOne(t *testing.T) {
	s := stats{size: 1, calls: 3}
	c := One("x_", []Metric[stats]{
		list[0], Count("calls", "Calls.", func(s *stats) uint64 { return uint64(s.calls) }),
		Histograms("age_seconds", "Ages.", Unit{Per: 1, From: 0, To: 1}, []string{"of"}, func(s *stats, put PutHistogram) { put(&s.ages, "all") }),
	}, func() stats { return s })
	s.size = 7
	s.ages.Add(1)
	require.Equal(t, `# HELP x_age_seconds Ages.
# TYPE x_age_seconds histogram
x_age_seconds_bucket{of="all",le="1"} 0
x_age_seconds_bucket{of="all",le="2"} 1
x_age_seconds_bucket{of="all",le="+Inf"} 1
x_age_seconds_sum{of="all"} 1
x_age_seconds_count{of="all"} 1
# HELP x_calls_total Calls.
# TYPE x_calls_total counter
x_calls_total 3
# HELP x_size A size.
# TYPE x_size gauge
x_size 7
`, scrape(t, c))
}
