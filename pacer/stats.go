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
