// Package dcprom exports the statistics of initiators and targets to Prometheus. It is apart from
// package dc so that programs without Prometheus do not have it.
package dcprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/prom"
)

// New returns a collector of an initiator. Register it with a constant label where there are
// several:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"device": "mlx5_0"}, registry).MustRegister(dcprom.New(i))
func New(i *dc.Initiator) prometheus.Collector { return prom.One("dc_initiator_", metrics, i.Stats) }

// NewTarget returns a collector of a target likewise. With hardware there is nothing to count.
func NewTarget(t *dc.Target) prometheus.Collector {
	return prom.One("dc_target_", targetMetrics, t.Stats)
}

var metrics = []prom.Metric[dc.Stats]{
	prom.Count("attaches", "Sessions opened or taken up again.", func(s *dc.Stats) uint64 { return s.Attaches }),
	prom.Count("resumes", "Sessions taken up again without a message.", func(s *dc.Stats) uint64 { return s.Resumes }),
	prom.Count("hits", "Requests to a target that was attached.", func(s *dc.Stats) uint64 { return s.Hits }),
	prom.Count("evictions", "Idle sessions that made room for another target.", func(s *dc.Stats) uint64 { return s.Evictions }),
	prom.Count("busy", "Busy replies.", func(s *dc.Stats) uint64 { return s.Busy }),
	prom.Count("not_ready", "Times that a target had no receive, and was left for others.", func(s *dc.Stats) uint64 { return s.NotReady }),
	prom.Count("waits", "Times that a target had to wait for a context.", func(s *dc.Stats) uint64 { return s.Waits }),
	prom.Counter("wait_seconds", "Time that targets waited for a context, all together.", func(s *dc.Stats) float64 { return s.Waited.Seconds() }),
	prom.Count("preemptions", "Times that a silent target left its context to others.", func(s *dc.Stats) uint64 { return s.GaveWay }),
	prom.Count("failures", "Sessions that failed.", func(s *dc.Stats) uint64 { return s.Failures }),
	prom.Count("retransmits", "Control messages sent again.", func(s *dc.Stats) uint64 { return s.Retransmits }),
	prom.Count("lookups", "Questions to services for targets that did not reply.", func(s *dc.Stats) uint64 { return s.Lookups }),
	prom.Count("malformed", "Control messages that made no sense.", func(s *dc.Stats) uint64 { return s.Malformed }),
	prom.Count("dropped_events", "Events that were not received in time.", func(s *dc.Stats) uint64 { return s.DroppedEvents }),
	prom.Gauge("sessions", "Sessions with a context.", func(s *dc.Stats) float64 { return float64(s.Live) }),
	prom.Gauge("kept_sessions", "Sessions without a context, that can be taken up again.", func(s *dc.Stats) float64 { return float64(s.Kept) }),
	prom.Gauge("waiting", "Targets that wait for a context.", func(s *dc.Stats) float64 { return float64(s.Waiting) }),
}

var targetMetrics = []prom.Metric[dc.TargetStats]{
	prom.Count("attaches", "Sessions opened.", func(s *dc.TargetStats) uint64 { return s.Attaches }),
	prom.Count("detaches", "Sessions closed by their initiators.", func(s *dc.TargetStats) uint64 { return s.Detaches }),
	prom.Count("expired", "Sessions taken back since their initiators fell silent.", func(s *dc.TargetStats) uint64 { return s.Expired }),
	prom.Count("reclaimed", "Sessions taken back that were not given back in time.", func(s *dc.TargetStats) uint64 { return s.Reclaimed }),
	prom.Count("busy", "Busy replies.", func(s *dc.TargetStats) uint64 { return s.Busy }),
	prom.Count("refused", "Wrong access keys, stale messages and failures to set up.", func(s *dc.TargetStats) uint64 { return s.Refused }),
	prom.Count("recalls", "Requests to initiators to detach.", func(s *dc.TargetStats) uint64 { return s.Recalls }),
	prom.Count("malformed", "Control messages that made no sense.", func(s *dc.TargetStats) uint64 { return s.Malformed }),
	prom.Count("dropped", "Control messages for which there was no time or memory.", func(s *dc.TargetStats) uint64 { return s.Dropped }),
	prom.Gauge("sessions", "Sessions open.", func(s *dc.TargetStats) float64 { return float64(s.Live) }),
}
