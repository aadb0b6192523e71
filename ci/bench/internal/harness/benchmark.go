// Package harness runs benchmarks: their sides in turn, in one process, and
// makes records of what comes of them.
package harness

import (
	"context"
	"slices"

	"github.com/goverbs/goverbs/ci/bench/measure"
)

// Clocks. On "instructions" time advances by 8 ns with each instruction executed, on the
// fast one by 2: a processor of four times the speed, for links that the other cannot
// fill.
const (
	Wall         = "wall"
	Instructions = "instructions"
	Fast         = "instructions-2ns"
)

// Both clocks.
var Both = []string{Instructions, Wall}

// Pass runs one side once and returns what it measured. It ends when its context
// does.
type Pass func(ctx context.Context) ([]float64, error)

// One is a pass with one value.
func One(f func(ctx context.Context) (float64, error)) Pass {
	return func(ctx context.Context) ([]float64, error) {
		v, err := f(ctx)
		return []float64{v}, err
	}
}

// Side is one of those that take turns.
type Side struct {
	Name string // what the record calls it when it is the baseline
	Run  Pass
}

// Figure is one row of the table: a value of one side's passes, divided by that
// of the baseline's in the same pair.
type Figure struct {
	Name     string
	Unit     string
	Of       string // side
	Baseline string // side; none for a plain value
	Value    int    // which one of a pass
	Target   *measure.Target
	Worst    bool // of all passes counts, in place of the median
}

// Benchmark is what is measured together: sides with interleaved passes,
// and the figures that come of them. Several figures share the passes of a side,
// one ratio to a good baseline and one to a naive one for instance.
type Benchmark struct {
	Name    string
	Sides   []Side
	Figures []Figure
	Judged  []string // clocks on which the targets are judged
	Also    []string // clocks on which the figures are reported without that

	Close func() error // called after the passes, if it is not nil
}

// Compare is a benchmark of one figure and two sides.
func Compare(f Figure, judged []string, ours Pass, baseline Side) Benchmark {
	f.Of, f.Baseline = "ours", baseline.Name
	return Benchmark{Name: f.Name, Sides: []Side{{"ours", ours}, baseline}, Figures: []Figure{f}, Judged: judged}
}

// Plain is a benchmark of one figure that has no baseline.
func Plain(f Figure, judged []string, ours Pass) Benchmark {
	f.Of = "ours"
	return Benchmark{Name: f.Name, Sides: []Side{{"ours", ours}}, Figures: []Figure{f}, Judged: judged}
}

// On reports whether the benchmark is measured on a clock.
func (b *Benchmark) On(clock string) bool {
	return slices.Contains(b.Judged, clock) || slices.Contains(b.Also, clock)
}

// Named reports whether one of the names is the benchmark's or a figure's.
func (b *Benchmark) Named(names []string) bool {
	return slices.Contains(names, b.Name) || slices.ContainsFunc(b.Figures, func(f Figure) bool { return slices.Contains(names, f.Name) })
}

// turns are the passes of one pair: baselines first and once more at the end, so
// that each is compared with itself too.
func (b *Benchmark) turns() []turn {
	var base, others, again []turn
	for i, s := range b.Sides {
		if slices.ContainsFunc(b.Figures, func(f Figure) bool { return f.Baseline == s.Name }) {
			base = append(base, turn{i, false})
			again = append(again, turn{i, true})
		} else {
			others = append(others, turn{i, false})
		}
	}
	return slices.Concat(base, others, again)
}

// turn is a pass of one side, the baseline's second one of a pair perhaps.
type turn struct {
	side  int
	again bool
}
