package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/measure"
)

// pass runs one side of a comparison once and answers one value.
type pass func(ctx context.Context) (float64, error)

// benchmark is one figure of a suite.
type benchmark struct {
	name     string
	unit     string
	baseline string // what base runs
	target   *measure.Target
	// clocks are those on which the target is judged; on others the figure is
	// reported.
	clocks []string
	only   bool // measured on those clocks alone
	ours   pass
	base   pass // nil for a plain value
}

// pairs of one benchmark on each clock. The spread of the baseline against
// itself, over ten pairs each, was below 0.5 % on the instruction clock and
// 0.6 to 1.8 on the wall clock, where no number that can be had resolves five
// per cent (ratios: see rxe-lab's table in ci/README.md).
var defaultPairs = map[string]int{"instructions": 6, "wall": 9}

// suites are filled in by the files of this package.
var suites = map[string]func(env) []benchmark{}

// env is what benchmarks need to know of the run.
type env struct {
	clock     string
	topology  string
	kernel    string
	rdmabench string // path of our program
	shim      string // path of yield.so
}

// measureSuite runs all benchmarks and reports progress.
func measureSuite(ctx context.Context, e env, list []benchmark, pairs int, progress io.Writer) ([]measure.Record, error) {
	var out []measure.Record
	start := time.Now()
	for i, b := range list {
		began := time.Now()
		r, err := measureOne(ctx, e, b, pairs)
		if err != nil {
			return out, fmt.Errorf("%s: %w", b.name, err)
		}
		out = append(out, r)
		spent := time.Since(start)
		left := time.Duration(float64(spent) / float64(i+1) * float64(len(list)-i-1))
		fmt.Fprintf(progress, "bench: %-24s %v clock, %d pairs, ratio %.3f, took %v, about %v left\n", b.name, e.clock, r.Pairs,
			r.Ratio, time.Since(began).Round(time.Second), left.Round(time.Second))
	}
	return out, nil
}

// measureOne interleaves: in each pair the baseline runs twice and we once, and
// the place in which we run rotates, so that no drift favours a side. A pass
// that fails is repeated once and counted; failing again ends the run.
func measureOne(ctx context.Context, e env, b benchmark, pairs int) (measure.Record, error) {
	r := measure.Record{Name: b.name, Clock: e.clock, Unit: b.unit, Baseline: b.baseline, Kernel: e.kernel, Topology: e.topology}
	target := b.target
	if !slices.Contains(b.clocks, e.clock) {
		target = nil
	}
	run := func(p pass) (float64, error) {
		v, err := p(ctx)
		if err != nil && ctx.Err() == nil {
			r.Failed++
			v, err = p(ctx)
		}
		return v, err
	}
	var ours, base, again []float64
	for i := range pairs {
		order := [][]*[]float64{{&base, &ours, &again}, {&ours, &base, &again}, {&base, &again, &ours}}[i%3]
		for _, into := range order {
			p := b.base
			if into == &ours {
				p = b.ours
			}
			if p == nil {
				continue
			}
			v, err := run(p)
			if err != nil {
				return r, err
			}
			*into = append(*into, v)
		}
	}
	if b.base == nil {
		r.Plain(ours, target)
	} else {
		r.Compare(ours, base, again, target)
	}
	return r, nil
}
