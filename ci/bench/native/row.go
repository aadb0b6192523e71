package native

import (
	"cmp"
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// size is how much a pass does: blocks of so many operations.
type size struct{ blocks, block int }

// operations carries out n of them and returns how long they took.
type operations func(ctx context.Context, n int) (time.Duration, error)

// each is operations one after the other.
func each(f func(ctx context.Context) error) operations {
	return func(ctx context.Context, n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := f(ctx); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
}

// row is an operation beside a baseline, on devices that both have for the row alone: whatever else
// was open would take the devices' time.
type row struct {
	name     string
	target   *measure.Target
	baseline string // what it is; empty if there is none
	per      int    // operations are divided in so many; 0 is 1
	few      int    // blocks have so many times fewer operations than others; 0 is 1
	rate     bool   // operations in a second, instead of the time of one
	unit     string // of the rate, if it is another one
	factor   float64
	inC      bool // nothing is allocated in Go
	waited   bool // with the mean time over the best
	open     func(*opened) (ours, base operations, err error)
}

// Values of a pass.
const (
	value     = iota // of the fastest block
	meanOver         // mean time of all blocks, over the fastest
	allocated        // objects of an operation
)

// benchmark returns the row's, with a figure of its allocations.
func (r row) benchmark(s size) harness.Benchmark {
	o := &opened{}
	sides := sync.OnceValues(func() ([2]operations, error) {
		ours, base, err := r.open(o)
		return [2]operations{ours, base}, err
	})
	pass := func(side int) harness.Pass {
		return func(ctx context.Context) ([]float64, error) {
			ops, err := sides()
			if err != nil {
				return nil, err
			}
			return r.pass(ctx, s, ops[side])
		}
	}
	unit := "ns"
	s.block = max(s.block/max(r.few, 1), 1)
	objectsTarget := 0.01
	if r.rate { // goroutines take memory, and need a while to come together
		unit = cmp.Or(r.unit, "op/s")
		s.block, s.blocks, objectsTarget = 5*s.block, max(s.blocks/4, 1), 0.1
	}
	f := harness.Figure{Name: r.name, Unit: unit, Of: "ours", Baseline: r.baseline, Value: value, Target: r.target}
	b := harness.Benchmark{Name: r.name, Sides: []harness.Side{{Name: "ours", Run: pass(0)}}, Figures: []harness.Figure{f},
		Judged: []string{harness.Wall}, Close: o.close}
	objects := harness.Figure{Name: r.name + "_allocations", Unit: "objects", Of: "ours", Value: allocated, Target: measure.AtMost(objectsTarget)}
	if !r.inC {
		b.Figures = append(b.Figures, objects)
	}
	if r.waited {
		mean := harness.Figure{Name: r.name + "_mean_over_best", Unit: "ratio", Of: "ours", Value: meanOver}
		if !r.inC {
			mean.Target = measure.AtMost(1.5)
		}
		b.Figures = append(b.Figures, mean)
	}
	if r.baseline != "" {
		b.Sides = append(b.Sides, harness.Side{Name: r.baseline, Run: pass(1)})
	}
	return b
}

// pass returns the values. The first block is not counted. The fastest of the others counts: on a
// shared machine whatever disturbs a block adds to it.
func (r row) pass(ctx context.Context, s size, ops operations) ([]float64, error) {
	if _, err := ops(ctx, s.block); err != nil {
		return nil, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	least, sum := time.Duration(1<<62), time.Duration(0)
	for range s.blocks {
		took, err := ops(ctx, s.block)
		if err != nil {
			return nil, err
		}
		least, sum = min(least, took), sum+took
	}
	runtime.ReadMemStats(&after)
	per := float64(s.block * max(r.per, 1))
	v := []float64{value: float64(least) / per, meanOver: float64(sum) / (float64(s.blocks) * float64(least)), allocated: float64(after.Mallocs-before.Mallocs) / (per * float64(s.blocks))}
	if r.rate {
		v[value] = 1e9 / v[value]
	}
	if r.factor != 0 {
		v[value] *= r.factor
	}
	return v, nil
}

// opened is what is closed after a row, in the reverse order.
type opened struct{ all []io.Closer }

func (o *opened) add(c io.Closer) { o.all = append(o.all, c) }

func (o *opened) close() error {
	var errs []error
	for _, c := range slices.Backward(o.all) {
		errs = append(errs, c.Close())
	}
	o.all = nil
	return errors.Join(errs...)
}
