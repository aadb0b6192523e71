package srd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// losing runs a pass while both directions lose packets.
func losing(share float64, f func(context.Context) (float64, error)) harness.Pass {
	return one(func(ctx context.Context) (v float64, err error) {
		c, s, err := rig.Endpoints()
		if err != nil {
			return 0, err
		}
		for _, e := range []lab.Endpoint{c, s} {
			if share == 0 {
				continue
			}
			if err := lab.Impair(e.Netdev, lab.Impairment{Loss: share}); err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, lab.Restore(e.Netdev)) }()
		}
		return f(ctx)
	})
}

// losses compare goodput with that without loss, and the tail with RC's.
func losses() []harness.Benchmark {
	goodput := func(ctx context.Context) (float64, error) {
		return paired(ctx, srd.Config{}, streamGoodput)
	}
	none := harness.Side{Name: "without loss", Run: losing(0, goodput)}
	row := func(name string, share, target float64) harness.Benchmark {
		return harness.Compare(harness.Figure{Name: name, Unit: "MiB/s", Target: measure.AtLeast(target)}, instructions, losing(share, goodput), none)
	}
	tail := harness.Compare(harness.Figure{Name: "loss1_p99", Unit: "us", Target: measure.AtMost(0.1)}, wall,
		losing(0.01, func(ctx context.Context) (float64, error) { return paired(ctx, srd.Config{}, sendTail) }), harness.Side{Name: "RC SEND", Run: losing(0.01, rcTail)})
	tail.Also = instructions
	return []harness.Benchmark{row("loss1_goodput", 0.01, 0.95), row("loss5_goodput", 0.05, 0.85), tail}
}

// streamGoodput is MiB/s of messages of several packets.
func streamGoodput(ctx context.Context, p *pair) (float64, error) {
	s, err := newStreamer(p.a, p.b.Addr(), 4000, 96)
	if err != nil {
		return 0, err
	}
	return s.rate(ctx, 4000, 500, 2000)
}

const tailRounds = 1000

// tail answers the 99th percentile in microseconds.
func tail(n int, f func() error) (float64, error) {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return float64(took[n*99/100]) / 1e3, nil
}

func sendTail(ctx context.Context, p *pair) (float64, error) {
	b := make([]byte, small)
	send := func() error { return p.a.Send(ctx, p.b.Addr(), b) }
	if _, err := tail(100, send); err != nil {
		return 0, err
	}
	return tail(tailRounds, send)
}

// rcTail is a WRITE of 64 bytes, which completes when the other side has it, as SRD's
// message does.
func rcTail(context.Context) (float64, error) {
	r, err := rig.NewRC()
	if err != nil {
		return 0, err
	}
	var wcs [1]verbs.WC
	local, at := r.MR.SGE(0, small), r.Peer.Region().At(0)
	return tail(tailRounds, func() error {
		r.Batch.Write(1, verbs.Signaled, at, local)
		if err := r.Do(&wcs); err != nil {
			return fmt.Errorf("RC: %w", err)
		}
		return nil
	})
}
