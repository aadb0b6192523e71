package srd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// What is measured of messages one at a time: each quantile at each loss.
var (
	tailLosses    = []float64{0, 0.01, 0.05}
	tailQuantiles = []struct {
		name, label string
		of          float64
	}{{"p50", "median", 0.5}, {"p99", "99 %", 0.99}, {"p999", "99.9 %", 0.999}}
)

const (
	tailRounds = 3000
	tailWarm   = 100
)

// Sides of the tail.
const (
	tailRC    = "RC WRITE"
	tailQuick = "RC WRITE, 4 ms timeout"
	// quickTimeout is the shortest one that Soft-RoCE keeps: its timers count in ticks of
	// the kernel.
	quickTimeout = 4 * time.Millisecond
)

func tailName(loss float64, quantile string) string {
	return fmt.Sprintf("loss%g_%s", 100*loss, quantile)
}

func quickName(name string) string { return name + "_vs_rc_4ms" }

// tails compare how long messages of 64 bytes take, one at a time, with RC's: as it is
// connected by default, and with the timeout that suits it best.
func tails() harness.Benchmark {
	b := harness.Benchmark{Name: "tails", Judged: both, Sides: []harness.Side{
		{Name: "ours", Run: tail(sendTail)},
		{Name: tailRC, Run: tail(rcTail(verbs.ConnectConfig{}))},
		{Name: tailQuick, Run: tail(rcTail(verbs.ConnectConfig{AckTimeout: quickTimeout}))},
	}}
	for i, loss := range tailLosses {
		for k, q := range tailQuantiles {
			f := harness.Figure{Name: tailName(loss, q.name), Unit: "us", Of: "ours", Baseline: tailRC, Value: i*len(tailQuantiles) + k}
			quick := f
			quick.Name, quick.Baseline = quickName(f.Name), tailQuick
			if f.Name == "loss1_p99" {
				f.Target = measure.AtMost(0.1)
			}
			b.Figures = append(b.Figures, f, quick)
		}
	}
	return b
}

// tail has f measure the quantiles at each loss.
func tail(f func(context.Context) ([]float64, error)) harness.Pass {
	return func(ctx context.Context) (all []float64, err error) {
		for _, loss := range tailLosses {
			err := whileLosing(loss, func() error {
				v, err := f(ctx)
				all = append(all, v...)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("loss of %g: %w", loss, err)
			}
		}
		return all, nil
	}
}

// quantiles returns those of how long f takes, in microseconds.
func quantiles(f func() error) ([]float64, error) {
	took := make([]float64, tailRounds)
	for i := range tailWarm + tailRounds {
		start := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		if i >= tailWarm {
			took[i-tailWarm] = float64(time.Since(start)) / 1e3
		}
	}
	slices.Sort(took)
	var out []float64
	for _, q := range tailQuantiles {
		out = append(out, took[int(tailRounds*q.of)])
	}
	return out, nil
}

func sendTail(ctx context.Context) ([]float64, error) {
	return paired(ctx, srd.Config{}, func(ctx context.Context, p *pair) ([]float64, error) {
		b := make([]byte, small)
		return quantiles(func() error { return p.a.Send(ctx, p.b.Addr(), b) })
	})
}

// rcTail is a WRITE of 64 bytes, which completes when the other side has it, as SRD's
// message does.
func rcTail(cfg verbs.ConnectConfig) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		r, err := rig.NewRCWith(4096, verbs.CQConfig{PollOnly: true}, cfg)
		if err != nil {
			return nil, err
		}
		var wcs [1]verbs.WC
		local, at := r.MR.SGE(0, small), r.Peer.Region().At(0)
		return quantiles(func() error {
			r.Batch.Write(1, verbs.Signaled, at, local)
			if err := errors.Join(ctx.Err(), r.Do(&wcs)); err != nil {
				return fmt.Errorf("RC: %w", err)
			}
			return nil
		})
	}
}
