package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/bench/measure"
)

// Pairs of each benchmark. On the instruction clock six have an interval of 1 %
// to each side for most rows, by the baseline against itself in a pilot of six
// pairs and measure.Pairs; for send_ud_rate it wanted 12, for conn_setup 23. On the
// wall clock the baseline against itself spreads by 60 to 180 %, and no number
// that can be had resolves five per cent: what is judged there are rows that a
// delay or a rate dominates, and of the others the interval tells.
var Pairs = map[string]int{Instructions: 6, Fast: 6, Wall: 9}

// Env is what suites need to know of the run.
type Env struct {
	Clock      string
	Topology   string
	Kernel     string
	Rdmabench  string        // path of our program
	Rdmacached string        // path of the daemon
	HitRate    string        // path of the program of the cache's hit rates
	SimHCA     string        // path of simhca.so
	Shim       string        // path of yield.so
	PassLimit  time.Duration // what a pass may take, on the clock of the run
	// HostClock, if given, is another clock, which does not run ahead when the guest
	// waits for its host: a pass may take minOfHost on it in any case.
	HostClock func() (time.Duration, error)
	// Profiles, if not empty, is a folder for a CPU profile of each benchmark: more passes of
	// the side "ours", after those that are measured.
	Profiles string
}

const minOfHost = 30 * time.Second

// abandoned is how much longer than its limit a pass is waited for that does not
// look at its context. Processes that were killed took up to 128 s of the
// instruction clock to be gone, on a busy host.
const abandoned = 3 * time.Minute

// Run measures all benchmarks. One that cannot be measured is a record of its own
// kind, and the others follow. After each benchmark all records until then are
// saved, because a guest may not live until the last one. Run fails when a
// benchmark did.
func Run(ctx context.Context, e Env, list []Benchmark, pairs int, progress io.Writer, save func([]measure.Record) error) error {
	out := []measure.Record{}
	if err := save(out); err != nil { // a list that is empty is one too
		return err
	}
	var failed []error
	start := time.Now()
	for i := range list {
		b := &list[i]
		began := time.Now()
		records, err := b.measure(ctx, e, pairs)
		if err == nil && e.Profiles != "" {
			err = b.profile(ctx, e)
		}
		if b.Close != nil {
			err = errors.Join(err, b.Close())
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out = append(out, records...)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", b.Name, err))
			fmt.Fprintf(progress, "bench: %s FAILED: %v\n", b.Name, err)
		}
		if err := save(out); err != nil {
			return err
		}
		left := time.Duration(float64(time.Since(start)) / float64(i+1) * float64(len(list)-i-1))
		fmt.Fprintf(progress, "bench: %-32s %v clock, %d pairs, took %v, about %v left\n", b.Name, e.Clock, pairs,
			time.Since(began).Round(time.Second), left.Round(time.Second))
	}
	return errors.Join(failed...)
}

// measure interleaves: in each pair every side runs once and the baselines twice,
// and the order rotates, so that no drift favours a side. A pass that fails is
// repeated once and counted; failing again ends the benchmark.
func (b *Benchmark) measure(ctx context.Context, e Env, pairs int) ([]measure.Record, error) {
	turns := b.turns()
	values := make(map[turn][][]float64)
	failed := 0
	var last error
	run := func(p Pass) (v []float64, err error) {
		for range 2 {
			if v, err = bounded(ctx, e, p); err == nil || ctx.Err() != nil {
				break
			}
			failed, last = failed+1, err
			if errors.Is(err, errAbandoned) {
				break
			}
		}
		return v, err
	}
	var err error
measuring:
	for i := range pairs {
		for k := range turns {
			t := turns[(i+k)%len(turns)]
			var v []float64
			if v, err = run(b.Sides[t.side].Run); err != nil {
				err = fmt.Errorf("%s: %w", b.Sides[t.side].Name, err)
				break measuring
			}
			values[t] = append(values[t], v)
		}
	}
	var out []measure.Record
	for _, f := range b.Figures {
		r := measure.Record{Name: f.Name, Clock: e.Clock, Unit: f.Unit, Baseline: f.Baseline, Kernel: e.Kernel, Topology: e.Topology, Failed: failed}
		if last != nil {
			r.Error = last.Error()
		}
		b.fill(&r, f, values, err)
		out = append(out, r)
	}
	return out, err
}

func (b *Benchmark) fill(r *measure.Record, f Figure, values map[turn][][]float64, err error) {
	target := f.Target
	if !slices.Contains(b.Judged, r.Clock) {
		target = nil
	}
	if err != nil {
		r.Fail(err, target)
		return
	}
	of := func(side string, again bool) []float64 {
		var out []float64
		for i, s := range b.Sides {
			if s.Name == side {
				for _, v := range values[turn{i, again}] {
					out = append(out, v[f.Value])
				}
			}
		}
		return out
	}
	switch {
	case f.Worst:
		r.Worst(of(f.Of, false), target)
	case f.Baseline == "":
		r.Plain(of(f.Of, false), target)
	default:
		r.Compare(of(f.Of, false), of(f.Baseline, false), of(f.Baseline, true), target)
	}
}

var errAbandoned = errors.New("it did not end when its time was over, and was left running")

// bounded runs a pass for so long at most. One that hangs where no context
// reaches is left alone: it may disturb what follows, and its error says so.
func bounded(ctx context.Context, e Env, p Pass) ([]float64, error) {
	ctx, cancel := limited(ctx, e)
	defer cancel()
	type result struct {
		v   []float64
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := p(ctx)
		done <- result{v, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		left, stop := limited(context.WithoutCancel(ctx), Env{PassLimit: abandoned, HostClock: e.HostClock})
		defer stop()
		select {
		case r = <-done:
		case <-left.Done():
			return nil, errAbandoned
		}
	}
	if r.err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("no result within %v: %w", e.PassLimit, r.err)
	}
	return r.v, r.err
}

// limited ends when a pass has taken what it may. The instruction clock runs ahead while a
// guest with nothing else to do waits for a file of its host, by minutes if the host is
// busy: a pass that was not to blame had its time taken so.
func limited(ctx context.Context, e Env) (context.Context, context.CancelFunc) {
	if e.HostClock == nil {
		return context.WithTimeout(ctx, e.PassLimit)
	}
	began, err := e.HostClock()
	if err != nil {
		return context.WithTimeout(ctx, e.PassLimit)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for wait := e.PassLimit; ; wait = time.Second {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			if now, err := e.HostClock(); err != nil || now-began >= minOfHost {
				cancel()
				return
			}
		}
	}()
	return ctx, cancel
}
