// Package pacerprom exports a pacer's counters to Prometheus. It is apart from package
// pacer so that programs without Prometheus do not have it.
package pacerprom

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/pacer"
)

// Collector collects a pacer. Register it with the device as a constant label where
// there are several. A class without a name has its number, and that behind its name if an
// earlier one has the same:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"device": "mlx5_0"}, registry).MustRegister(pacerprom.New(p))
type Collector struct {
	p *pacer.Pacer
}

// New returns a collector.
func New(p *pacer.Pacer) *Collector { return &Collector{p} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("pacer_"+name, help, labels, nil)
}

var (
	outstanding = desc("outstanding_bytes", "Response bytes outstanding.")
	sending     = desc("sending_bytes", "Bytes of PUTs outstanding.")
	threshold   = desc("threshold_bytes", "Response bytes that may be outstanding.")
	requests    = desc("requests", "Requests that are not over.")
	granted     = desc("granted_total", "Request packets granted.")
	solicited   = desc("solicited_bytes_total", "Response bytes asked for; its rate is what this host solicits.")
	passes      = desc("passes_total", "Times that a request was passed over for another.")
	floods      = desc("floods_total", "Times that this host had to ask its link partner for a pause.")
	overdue     = desc("overdue_total", "Request packets whose responses came too late, or not yet: others had their credit.")
	reissued    = desc("reissued_total", "Pieces of READs issued again.")
	failed      = desc("failed_total", "Request packets that failed.")
	probes      = desc("probes_total", "Times that the tuner measured the delay of the idle path.")

	classOutstanding = desc("class_outstanding_bytes", "Response bytes outstanding of a class.", "class")
	classQueued      = desc("class_queued", "Requests of a class that are not granted.", "class")
	classSolicited   = desc("class_solicited_bytes_total", "Response bytes asked for by a class.", "class")
	classGranted     = desc("class_granted_total", "Request packets granted to a class.", "class")
	classPasses      = desc("class_passes_total", "Times that a request of a class was passed over.", "class")
	classPromoted    = desc("class_promoted_total", "Request packets of a class that went first because of their wait or deadline.", "class")
	classDelay       = desc("class_queue_delay_seconds", "Times that requests of a class waited for their first grant.", "class")

	all = []*prometheus.Desc{outstanding, sending, threshold, requests, granted, solicited, passes, floods, overdue, reissued, failed, probes,
		classOutstanding, classQueued, classSolicited, classGranted, classPasses, classPromoted, classDelay}
)

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range all {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	st := c.p.Stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(outstanding, float64(st.Outstanding))
	gauge(sending, float64(st.Sending))
	gauge(threshold, float64(st.Threshold))
	gauge(requests, float64(st.Alive))
	count(granted, float64(st.Granted))
	count(solicited, float64(st.Solicited))
	count(passes, float64(st.Passes))
	count(floods, float64(st.Floods))
	count(overdue, float64(st.Overdue))
	count(reissued, float64(st.Reissued))
	count(failed, float64(st.Failed))
	count(probes, float64(st.Probes))
	names := labels(st.Classes)
	for i := range st.Classes {
		k := &st.Classes[i]
		k.Name = names[i]
		gauge(classOutstanding, float64(k.Outstanding), k.Name)
		gauge(classQueued, float64(k.Queued), k.Name)
		count(classSolicited, float64(k.Solicited), k.Name)
		count(classGranted, float64(k.Granted), k.Name)
		count(classPasses, float64(k.Passes), k.Name)
		count(classPromoted, float64(k.Promoted), k.Name)
		ch <- delays(k)
	}
}

// labels returns unique labels for classes, which may have no names, or equal ones.
func labels(classes []pacer.ClassStats) []string {
	out := make([]string, 0, len(classes))
	for i := range classes {
		number := strconv.Itoa(i)
		name := cmp.Or(strings.ToValidUTF8(classes[i].Name, "?"), number)
		for slices.Contains(out, name) {
			name += " " + number
		}
		out = append(out, name)
	}
	return out
}

// delays returns the waits of a class as a histogram.
func delays(k *pacer.ClassStats) prometheus.Metric {
	buckets := make(map[float64]uint64)
	total := uint64(0)
	for i, n := range k.Delays {
		total += n
		if i < len(k.Delays)-1 { // all others are in the count alone
			buckets[pacer.DelayLimit(i).Seconds()] = total
		}
	}
	return prometheus.MustNewConstHistogram(classDelay, total, k.Waited.Seconds(), buckets, k.Name)
}
