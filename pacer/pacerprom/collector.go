// Package pacerprom exports a pacer's counters to Prometheus. It is apart from package
// pacer so that programs without Prometheus do not have it.
package pacerprom

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/internal/prom"
	"github.com/goverbs/goverbs/pacer"
)

// New returns a collector of a pacer. Register it with the device as a constant label where there
// are several. The label "class" is the number of a class, and "name" its name:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"device": "mlx5_0"}, registry).MustRegister(pacerprom.New(p))
func New(p *pacer.Pacer) prometheus.Collector {
	return prom.One("pacer_", metrics, p.Stats)
}

var metrics = []prom.Metric[pacer.Stats]{
	gauge("outstanding_bytes", "Response bytes outstanding.", func(s *pacer.Stats) int64 { return s.Outstanding }),
	gauge("sending_bytes", "Bytes of PUTs outstanding.", func(s *pacer.Stats) int64 { return s.Sending }),
	gauge("threshold_bytes", "Response bytes that may be outstanding.", func(s *pacer.Stats) int64 { return s.Threshold }),
	gauge("requests", "Requests that are not over.", func(s *pacer.Stats) int64 { return int64(s.Alive) }),
	prom.Count("granted", "Request packets granted.", func(s *pacer.Stats) uint64 { return s.Granted }),
	prom.Count("solicited_bytes", "Response bytes asked for; its rate is what this host solicits.", func(s *pacer.Stats) uint64 { return s.Solicited }),
	prom.Count("passes", "Times that a request was passed over for another.", func(s *pacer.Stats) uint64 { return s.Passes }),
	prom.Count("floods", "Times that this host had to ask its link partner for a pause.", func(s *pacer.Stats) uint64 { return s.Floods }),
	prom.Count("overdue", "Request packets whose responses came too late, or not yet: others had their credit.", func(s *pacer.Stats) uint64 { return s.Overdue }),
	prom.Count("reissued", "Pieces of READs issued again.", func(s *pacer.Stats) uint64 { return s.Reissued }),
	prom.Count("failed", "Request packets that failed.", func(s *pacer.Stats) uint64 { return s.Failed }),
	prom.Count("probes", "Times that the tuner measured the delay of the idle path.", func(s *pacer.Stats) uint64 { return s.Probes }),

	prom.Gauges("class_outstanding_bytes", "Response bytes outstanding of a class.", labels, each(func(c *pacer.ClassStats) float64 { return float64(c.Outstanding) })),
	prom.Gauges("class_queued", "Requests of a class that are not granted.", labels, each(func(c *pacer.ClassStats) float64 { return float64(c.Queued) })),
	prom.Counters("class_solicited_bytes", "Response bytes asked for by a class.", labels, each(func(c *pacer.ClassStats) float64 { return float64(c.Solicited) })),
	prom.Counters("class_granted", "Request packets granted to a class.", labels, each(func(c *pacer.ClassStats) float64 { return float64(c.Granted) })),
	prom.Counters("class_passes", "Times that a request of a class was passed over.", labels, each(func(c *pacer.ClassStats) float64 { return float64(c.Passes) })),
	prom.Histograms("class_queue_delay_seconds", "Times that requests of a class waited for their first grant.", prom.Latency, labels, func(s *pacer.Stats, put prom.PutHistogram) {
		for i := range s.Classes {
			put(&s.Classes[i].Waits, of(s, i)...)
		}
	}),
}

func gauge(name, help string, of func(*pacer.Stats) int64) prom.Metric[pacer.Stats] {
	return prom.Gauge(name, help, func(s *pacer.Stats) float64 { return float64(of(s)) })
}

var labels = []string{"class", "name"}

// of returns the values of the labels of class i.
func of(s *pacer.Stats, i int) []string {
	return []string{strconv.Itoa(i), strings.ToValidUTF8(s.Classes[i].Name, "?")}
}

func each(value func(*pacer.ClassStats) float64) func(*pacer.Stats, prom.Put) {
	return func(s *pacer.Stats, put prom.Put) {
		for i := range s.Classes {
			put(value(&s.Classes[i]), of(s, i)...)
		}
	}
}
