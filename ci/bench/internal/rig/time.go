package rig

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/procs"
)

// Timed returns the median time of n calls in microseconds.
func Timed(n int, f func() error) (float64, error) {
	ns := make([]int64, n)
	var rest procs.Yield
	start, before := time.Now(), time.Duration(0)
	for i := range ns {
		if rest.Due(before) {
			runtime.Gosched()
		}
		if err := f(); err != nil {
			return 0, err
		}
		after := time.Since(start)
		ns[i] = int64(after - before)
		before = after
	}
	return MedianMicros(ns), nil
}

// MedianMicros returns the median of nanoseconds, in microseconds.
func MedianMicros(ns []int64) float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		out[i] = float64(v) / 1e3
	}
	return measure.Median(out)
}

// Lazy makes what passes run on when the first of them does; it lives as long as
// the process does.
func Lazy[R any](make func() (R, error)) *Once[R] { return &Once[R]{make: sync.OnceValues(make)} }

// Once is one rig of several passes.
type Once[R any] struct{ make func() (R, error) }

// Pass is a pass on the rig, with one value.
func (o *Once[R]) Pass(f func(R, context.Context) (float64, error)) harness.Pass {
	return o.Values(func(r R, ctx context.Context) ([]float64, error) {
		v, err := f(r, ctx)
		return []float64{v}, err
	})
}

// Values is a pass on the rig.
func (o *Once[R]) Values(f func(R, context.Context) ([]float64, error)) harness.Pass {
	return func(ctx context.Context) ([]float64, error) {
		r, err := o.make()
		if err != nil {
			return nil, err
		}
		return f(r, ctx)
	}
}

// OneWay is the delay of the rows that have it in their name.
const OneWay = time.Millisecond

// Late is a pass with the delay in both directions. Nothing is under way on the
// wire when it begins or ends but for heartbeats, which are sent again.
func Late(p harness.Pass) harness.Pass {
	return func(ctx context.Context) (v []float64, err error) {
		c, s, err := Endpoints()
		if err != nil {
			return nil, err
		}
		for _, e := range []lab.Endpoint{c, s} {
			if err := lab.Impair(e.Netdev, lab.Impairment{Delay: OneWay}); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, lab.Restore(e.Netdev)) }()
		}
		return p(ctx)
	}
}
