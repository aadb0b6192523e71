package pacer

import (
	"github.com/goverbs/goverbs/internal/histogram"
	"github.com/goverbs/goverbs/pacer/internal/shaper"
)

type (
	// Stats are counters and gauges of a pacer.
	Stats = shaper.Stats
	// ClassStats are the counters and gauges of a class.
	ClassStats = shaper.ClassStats
	// Histogram has buckets of powers of two.
	Histogram = histogram.Counts
)

// Stats returns the counters and gauges.
func (p *Pacer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s.Stats()
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
			return p.requests[e.request].ID, why, true
		}
	}
	return 0, shaper.None, false
}
