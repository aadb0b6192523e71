package pacer

import (
	"github.com/goverbs/goverbs/internal/histogram"
	"github.com/goverbs/goverbs/pacer/internal/shaper"
)

type (
	// Stats are counters and gauges of a pacer: go doc pacer/internal/shaper.Stats.
	Stats = shaper.Stats
	// ClassStats are the counters and gauges of a class: go doc pacer/internal/shaper.ClassStats.
	ClassStats = shaper.ClassStats
	// Histogram has buckets of powers of two: N[i] counts values below 1<<i and at least half of
	// that, the last one all others; Sum is the sum of all.
	Histogram = histogram.Counts
)

// Stats returns the counters and gauges.
func (p *Pacer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s.Stats()
}
