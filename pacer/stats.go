package pacer

import (
	"github.com/goverbs/goverbs/internal/histogram"
	"github.com/goverbs/goverbs/pacer/internal/shaper"
)

// Stats are counters and gauges of a pacer.
type Stats struct {
	Outstanding int64 // response bytes
	Sending     int64 // bytes of PUTs under way
	Threshold   int64 // response bytes that may be outstanding now
	Alive       int   // requests that are not over
	Granted     uint64
	Solicited   uint64 // response bytes asked for
	Passes      uint64 // a unit was passed over for another
	Reissued    uint64 // pieces of READs issued again
	Failed      uint64 // request packets that failed
	Probes      uint64 // times that the tuner measured the delay of the idle path
	Floods      uint64 // calls of Flooded
	Overdue     uint64 // request packets that came too late, or not yet
	Classes     []ClassStats
}

// ClassStats are the counters and gauges of a class: bytes outstanding, requests queued, and
// grants, with the times that requests waited for their first grant.
type ClassStats struct {
	Name string
	shaper.ClassStats
}

// Histogram has buckets of powers of two.
type Histogram = histogram.Counts

// Stats returns the counters and gauges.
func (p *Pacer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.s.Stats()
	out := Stats{Outstanding: p.s.Outstanding(), Sending: p.s.Sending(), Threshold: p.s.Threshold(), Alive: p.s.Alive(), Granted: st.Granted,
		Solicited: st.Solicited, Passes: st.Passes, Reissued: st.Reissued, Failed: st.Failed, Probes: st.Probes, Floods: st.Floods, Overdue: st.Overdue}
	for i := range p.s.Classes() {
		c, cs := p.s.Class(i)
		out.Classes = append(out.Classes, ClassStats{c.Name, cs})
	}
	return out
}

// BlockedBy returns the ID of the oldest request of the queue pair that is not under way as a
// whole, and the limit that holds it. ok is false if there is none.
func (q *QP) BlockedBy() (id uint64, why Reason, ok bool) {
	p := q.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := q.head; i != q.tail; i++ {
		e := &q.order[i%uint64(len(q.order))]
		if e.done {
			continue
		}
		if why := p.s.Explain(e.request, p.now()); why != shaper.None && why != shaper.Finished {
			return p.requests[e.request].id, why, true
		}
	}
	return 0, shaper.None, false
}
