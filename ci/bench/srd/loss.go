package srd

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/srd"
)

// losing runs a pass while both directions lose packets.
func losing(share float64, f func(context.Context) (float64, error)) harness.Pass {
	return one(func(ctx context.Context) (v float64, err error) {
		err = whileLosing(share, func() error {
			v, err = f(ctx)
			return err
		})
		return v, err
	})
}

func whileLosing(share float64, f func() error) (err error) {
	if share == 0 {
		return f()
	}
	c, s, err := rig.Endpoints()
	if err != nil {
		return err
	}
	for _, e := range []lab.Endpoint{c, s} {
		if err := lab.Impair(e.Netdev, lab.Impairment{Loss: share}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lab.Restore(e.Netdev)) }()
	}
	return f()
}

// losses compare goodput with that without loss.
func losses() []harness.Benchmark {
	goodput := func(ctx context.Context) (float64, error) {
		return paired(ctx, srd.Config{}, streamGoodput)
	}
	none := harness.Side{Name: "without loss", Run: losing(0, goodput)}
	row := func(name string, share, target float64) harness.Benchmark {
		return harness.Compare(harness.Figure{Name: name, Unit: "MiB/s", Target: measure.AtLeast(target)}, instructions, losing(share, goodput), none)
	}
	return []harness.Benchmark{row("loss1_goodput", 0.01, 0.95), row("loss5_goodput", 0.05, 0.85)}
}

// streamGoodput is MiB/s of messages of several packets.
func streamGoodput(ctx context.Context, p *pair) (float64, error) {
	s, err := newStreamer(p.a, p.b.Addr(), 4000, 96)
	if err != nil {
		return 0, err
	}
	return s.rate(ctx, 4000, 500, 2000)
}
