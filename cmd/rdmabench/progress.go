package main

import (
	"fmt"
	"io"
	"time"
)

// meter shows every meterPeriod how far a run is and when it ends.
type meter struct {
	on    bool
	w     io.Writer
	total int // messages, or 0:
	limit time.Duration
	begun int64
	shown int64
}

// meterPeriod is changed by tests alone.
var meterPeriod = 2 * time.Second

func newMeter(on bool, w io.Writer, p params) *meter {
	m := &meter{on: on, w: w, total: p.Iterations, limit: p.Duration, begun: clock()}
	if p.bandwidth() {
		m.total *= p.QPs
	}
	m.shown = m.begun
	return m
}

// due reports whether [meter.show] has something to print.
func (m *meter) due(now int64) bool { return m.on && now-m.shown >= int64(meterPeriod) }

func (m *meter) show(count int) {
	if now := clock(); m.due(now) {
		m.shown = now
		fmt.Fprintln(m.w, m.line(count, time.Duration(now-m.begun)))
	}
}

func (m *meter) line(count int, elapsed time.Duration) string {
	left := m.limit - elapsed
	of := fmt.Sprintf("%d messages, %v of %v", count, elapsed.Round(time.Second), m.limit)
	if m.total > 0 {
		of = fmt.Sprintf("%d of %d", count, m.total)
		if count == 0 {
			return "rdmabench: " + of
		}
		left = time.Duration(float64(elapsed) / float64(count) * float64(m.total-count))
	}
	left = max(left, 0)
	return fmt.Sprintf("rdmabench: %s, %v left, until %s", of, left.Round(time.Second), time.Now().Add(left).Format(time.TimeOnly))
}
