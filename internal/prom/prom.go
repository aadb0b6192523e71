// Package prom exports structs of statistics to Prometheus: a list says which metrics there are
// and how each is read out of the struct.
package prom

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/histogram"
)

// Metric is a metric of statistics of type S.
type Metric[S any] struct {
	name, help string
	labels     []string
	kind       prometheus.ValueType
	unit       Unit
	values     func(s *S, put Put)
	histograms func(s *S, put PutHistogram)
}

// Put passes on a value, with the values of the metric's labels.
type Put func(v float64, labels ...string)

// PutHistogram passes on a histogram, with the values of the metric's labels.
type PutHistogram func(h *histogram.Counts, labels ...string)

// Gauge returns a metric that rises and falls.
func Gauge[S any](name, help string, of func(*S) float64) Metric[S] {
	return Gauges(name, help, nil, func(s *S, put Put) { put(of(s)) })
}

// Counter returns a metric that rises. Its name ends with _total.
func Counter[S any](name, help string, of func(*S) float64) Metric[S] {
	return Counters(name, help, nil, func(s *S, put Put) { put(of(s)) })
}

// Count returns a counter of an integer.
func Count[S any](name, help string, of func(*S) uint64) Metric[S] {
	return Counter(name, help, func(s *S) float64 { return float64(of(s)) })
}

// Gauges returns gauges that labels tell apart. all puts each of them.
func Gauges[S any](name, help string, labels []string, all func(*S, Put)) Metric[S] {
	return Metric[S]{name: name, help: help, labels: labels, kind: prometheus.GaugeValue, values: all}
}

// Counters returns counters that labels tell apart. all puts each of them.
func Counters[S any](name, help string, labels []string, all func(*S, Put)) Metric[S] {
	return Metric[S]{name: name + "_total", help: help, labels: labels, kind: prometheus.CounterValue, values: all}
}

// Histograms returns histograms that labels tell apart. all puts each of them.
func Histograms[S any](name, help string, unit Unit, labels []string, all func(*S, PutHistogram)) Metric[S] {
	return Metric[S]{name: name, help: help, labels: labels, unit: unit, histograms: all}
}

// Unit is how the values of a histogram are exported: divided by Per, in buckets from 1<<From to
// 1<<To. Longer values are in the last bucket, +Inf.
type Unit struct {
	Per      float64
	From, To int
}

var (
	// Latency is of histograms in nanoseconds, in buckets from 512 ns to 8.6 s.
	Latency = Unit{Per: 1e9, From: 9, To: 33}
	// Age is of histograms in milliseconds, in buckets from 128 ms to 12 days.
	Age = Unit{Per: 1e3, From: 7, To: 30}
)

// buckets returns the cumulated counts by upper bound.
func (u Unit) buckets(c *histogram.Counts) map[float64]uint64 {
	out := make(map[float64]uint64, u.To-u.From+1)
	n := uint64(0)
	for i := range u.To + 1 {
		if n += c.N[i]; i >= u.From {
			out[float64(uint64(1)<<i)/u.Per] = n
		}
	}
	return out
}

// Collector collects the metrics of one thing or several.
type Collector[S any] struct {
	metrics []Metric[S]
	descs   []*prometheus.Desc
	labels  int
	each    func(func(label string, s *S))
}

// New returns a collector of metrics, with that prefix to their names. each calls its argument with
// the statistics of each thing and the value of the label that tells it from others. The empty
// label is none: there is one thing.
func New[S any](prefix string, metrics []Metric[S], label string, each func(func(label string, s *S))) *Collector[S] {
	c := &Collector[S]{metrics: metrics, each: each}
	var labels []string
	if label != "" {
		labels, c.labels = []string{label}, 1
	}
	for _, m := range metrics {
		c.descs = append(c.descs, prometheus.NewDesc(prefix+m.name, m.help, slices.Concat(labels, m.labels), nil))
	}
	return c
}

// One returns a collector of the metrics of one thing, with the statistics that stats returns.
func One[S any](prefix string, metrics []Metric[S], stats func() S) *Collector[S] {
	return New(prefix, metrics, "", func(f func(string, *S)) {
		st := stats()
		f("", &st)
	})
}

// Describe implements [prometheus.Collector].
func (c *Collector[S]) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector[S]) Collect(ch chan<- prometheus.Metric) {
	c.each(func(label string, s *S) {
		own := []string{label}[:c.labels]
		for i, m := range c.metrics {
			if m.histograms != nil {
				m.histograms(s, func(h *histogram.Counts, labels ...string) {
					ch <- prometheus.MustNewConstHistogram(c.descs[i], h.Total(), float64(h.Sum)/m.unit.Per, m.unit.buckets(h), slices.Concat(own, labels)...)
				})
				continue
			}
			m.values(s, func(v float64, labels ...string) {
				ch <- prometheus.MustNewConstMetric(c.descs[i], m.kind, v, slices.Concat(own, labels)...)
			})
		}
	})
}
