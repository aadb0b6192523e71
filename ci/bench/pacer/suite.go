// Package pacer is the suite of package pacer: bulk READs that flood a slow link in
// front of their requester, beside a READ of 64 bytes now and then.
package pacer

import (
	"context"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/pacer"
)

var (
	wall = []string{harness.Wall}
	both = harness.Both
	// On the usual instruction clock the processor, which is both ends, carries less than
	// a link of 80 Mbit/s: rows of fast links are judged on the fast one too.
	fast = append([]string{harness.Fast}, both...)
)

// The link in front of the requester: 40 Mbit/s, and a queue of 64 KiB that loses what
// does not fit. It is an ifb device with a token bucket at the requester's ingress.
const (
	linkRate  = 40e6
	linkQueue = 64 << 10
)

// Suite compares the pacer with nothing, with a depth limit of each queue pair, and
// with a window of bytes that all requests wait for in turn.
func Suite(harness.Env) []harness.Benchmark {
	var list []harness.Benchmark
	for _, n := range []int{8, 16, 32} {
		list = append(list, incast(n))
	}
	for _, mbit := range []float64{20, 40, 80} {
		list = append(list, tuned(mbit, 0))
	}
	list = append(list, tuned(80, 20), tuned(20, 80))
	list = append(list, subReads()...)
	return append(list, classHigh(), fairness(), idle())
}

// Native is what needs no device and is measured on this machine itself.
func Native(harness.Env) []harness.Benchmark { return []harness.Benchmark{admit()} }

// Values of a pass of readers.
const (
	goodput   = iota // MB/s
	linkBytes        // MB/s, with small READs and all headers
	ofLink           // as a part of it
	probeP99         // ms
	qpErrors         // queue pairs that failed
	jain             // fairness
	perValues
)

func incast(n int) harness.Benchmark {
	side := func(name string, r readers) harness.Side {
		r.queuePairs, r.rate, r.queue, r.span = n, linkRate, linkQueue, 2*time.Second
		return harness.Side{Name: name, Run: r.pass}
	}
	paced := pacer.Config{Slice: 16 << 10, Threshold: 40 << 10}
	const unpaced, depth, window = "unpaced", "a depth limit of each queue pair", "a window of bytes"
	name := fmt.Sprintf("incast_%d", n)
	return harness.Benchmark{Name: name, Judged: both,
		Sides: []harness.Side{
			side("ours", readers{size: 64 << 10, depth: 4, pacer: &paced}),
			side(unpaced, readers{size: 64 << 10, depth: 4}),
			side(depth, readers{size: max(32<<10/n, 4<<10)}),
			side(window, readers{size: 16 << 10, window: 48 << 10}),
		},
		Figures: []harness.Figure{
			{Name: name + "_goodput_of_link", Unit: "ratio", Of: "ours", Value: ofLink, Target: measure.AtLeast(0.93)},
			{Name: name + "_goodput_vs_unpaced", Unit: "MB/s", Of: "ours", Baseline: unpaced, Value: goodput, Target: measure.AtLeast(4.5)},
			{Name: name + "_vs_depth_cap", Unit: "MB/s", Of: "ours", Baseline: depth, Value: goodput, Target: measure.AtLeast(1)},
			{Name: name + "_vs_byte_window", Unit: "MB/s", Of: "ours", Baseline: window, Value: goodput, Target: measure.AtLeast(1)},
			{Name: name + "_link_bytes_vs_depth_cap", Unit: "MB/s", Of: "ours", Baseline: depth, Value: linkBytes, Target: measure.AtLeast(1)},
			{Name: name + "_link_bytes_vs_byte_window", Unit: "MB/s", Of: "ours", Baseline: window, Value: linkBytes, Target: measure.AtLeast(1)},
			{Name: name + "_probe_p99_vs_unpaced", Unit: "ms", Of: "ours", Baseline: unpaced, Value: probeP99, Target: measure.AtMost(0.2)},
			{Name: name + "_probe_p99_vs_depth_cap", Unit: "ms", Of: "ours", Baseline: depth, Value: probeP99, Target: measure.AtMost(1)},
			{Name: name + "_probe_p99_vs_byte_window", Unit: "ms", Of: "ours", Baseline: window, Value: probeP99, Target: measure.AtMost(1)},
			{Name: name + "_qp_errors", Unit: "QPs", Of: "ours", Value: qpErrors, Target: measure.AtMost(0)},
		}}
}

// tuned begins without knowing the link, which may have another rate in the end.
func tuned(mbit, then float64) harness.Benchmark {
	r := readers{queuePairs: 8, size: 64 << 10, depth: 4, rate: mbit * 1e6, then: then * 1e6, queue: linkQueue, span: 2 * time.Second, pacer: &pacer.Config{Tune: true}}
	name := fmt.Sprintf("autotune_goodput_of_link_%.0f", mbit)
	if then > 0 {
		name += fmt.Sprintf("_then_%.0f", then)
	}
	b := harness.Plain(harness.Figure{Name: name, Unit: "ratio", Target: measure.AtLeast(0.9)}, fast, r.ofLink)
	if mbit >= 80 && then == 0 {
		// What the guest carries by itself, which is less than such a link on the usual
		// instruction clock; and both without small READs, which take of its processor too.
		plain, windowed := r, r
		plain.pacer, windowed.pacer = nil, nil
		windowed.size, windowed.depth, windowed.window = 16<<10, 1, 48<<10
		alone, windowedAlone := r, windowed
		alone.small, windowedAlone.small = -1, -1
		for _, side := range []struct {
			name string
			r    readers
		}{{"unpaced", plain}, {"byte_window", windowed}, {"autotune_alone", alone}, {"byte_window_alone", windowedAlone}} {
			b.Sides = append(b.Sides, harness.Side{Name: side.name, Run: side.r.ofLink})
			b.Figures = append(b.Figures, harness.Figure{Name: fmt.Sprintf("%s_goodput_of_link_%.0f", side.name, mbit), Unit: "ratio", Of: side.name})
		}
	}
	return b
}

func (r readers) ofLink(ctx context.Context) ([]float64, error) {
	v, err := r.pass(ctx)
	return []float64{v[ofLink]}, err
}

// subReads are goodputs by the size of sub-READs and the threshold: small ones were
// seen to collapse on Linux 6.12.
func subReads() []harness.Benchmark {
	var list []harness.Benchmark
	for _, slice := range []int{4, 8, 16} {
		for _, window := range []int64{16, 32, 48} {
			r := readers{queuePairs: 8, size: 64 << 10, depth: 4, rate: linkRate, queue: linkQueue, span: 1500 * time.Millisecond,
				pacer: &pacer.Config{Slice: slice << 10, Threshold: window<<10 + 2<<10}}
			f := harness.Figure{Name: fmt.Sprintf("sub_read_%dKiB_window_%dKiB", slice, window), Unit: "ratio"}
			list = append(list, harness.Plain(f, both, r.ofLink))
		}
	}
	return list
}

func fairness() harness.Benchmark {
	r := readers{queuePairs: 32, size: 16 << 10, depth: 4, rate: linkRate, queue: linkQueue, span: 3 * time.Second, pacer: &pacer.Config{Slice: 16 << 10, Threshold: 40 << 10}}
	return harness.Plain(harness.Figure{Name: "fairness_jain", Unit: "index", Target: measure.AtLeast(0.98)}, both, func(ctx context.Context) ([]float64, error) {
		v, err := r.pass(ctx)
		return []float64{v[jain]}, err
	})
}

// classHigh has READs of 4 KiB, which are too large for the reserve, in a class above
// that of the bulk READs. They may take half as long again as alone, and the time of
// one sub-READ, which cannot be called back. In one side bulk READs have a cap of one
// sub-READ, and all together four fifths of the link's rate, so that nothing waits in
// front of it; in the other all of the threshold.
func classHigh() harness.Benchmark {
	const slice, response = 16 << 10, 16<<10 + 4*66 // with headers
	side := func(name string, bulkCap int64) harness.Side {
		cfg := pacer.Config{MTU: 4096, Header: 66, Slice: slice, Threshold: 40 << 10, Classes: []pacer.Class{{Name: "bulk", Cap: bulkCap}, {Name: "high", Priority: 1}}}
		if bulkCap > 0 {
			cfg.Rate, cfg.Burst = 0.8*linkRate/8, response
		}
		alone := readers{small: 4 << 10, class: 1, rate: linkRate, queue: linkQueue, span: time.Second, pacer: &cfg}
		beside := alone
		beside.queuePairs, beside.size, beside.depth, beside.span = 8, 64<<10, 4, 2*time.Second
		return harness.Side{Name: name, Run: func(ctx context.Context) ([]float64, error) {
			base, err := alone.pass(ctx)
			if err != nil {
				return make([]float64, 4), err
			}
			v, err := beside.pass(ctx)
			one := float64(response) / (linkRate / 8) * 1000
			return []float64{v[probeP99] / (1.5*base[probeP99] + one), base[probeP99], v[probeP99], v[ofLink]}, err
		}}
	}
	const capped, open = "ours", "bulk without a cap"
	b := harness.Benchmark{Name: "class_high", Judged: both, Sides: []harness.Side{side(capped, slice+1<<10), side(open, 0)}}
	for i, f := range []struct{ name, unit string }{{"p99", "of its bound"}, {"alone_p99", "ms"}, {"beside_p99", "ms"}, {"goodput_of_link", "ratio"}} {
		of := harness.Figure{Name: "class_high_" + f.name, Unit: f.unit, Of: capped, Value: i}
		if i == 0 {
			of.Target = measure.AtMost(1)
		}
		b.Figures = append(b.Figures, of, harness.Figure{Name: "class_high_" + f.name + "_uncapped", Unit: f.unit, Of: open, Value: i})
	}
	return b
}

// idle is a pacer that holds nothing back, beside none.
func idle() harness.Benchmark {
	r := readers{queuePairs: 1, size: 16 << 10, depth: 4, span: 1500 * time.Millisecond}
	ours := r
	ours.pacer = &pacer.Config{Slice: -1, Threshold: 1 << 30}
	only := func(r readers) harness.Pass {
		return func(ctx context.Context) ([]float64, error) {
			v, err := r.pass(ctx)
			return []float64{v[goodput]}, err
		}
	}
	return harness.Compare(harness.Figure{Name: "idle_throughput", Unit: "MB/s", Target: measure.AtLeast(0.97)}, both, only(ours), harness.Side{Name: "the queue pair alone", Run: only(r)})
}

// admit is what it costs to acquire credit and give it back: of blocks of a thousand, so
// that the clock does not count, the median.
func admit() harness.Benchmark {
	const blocks, block = 200, 1000
	return harness.Plain(harness.Figure{Name: "admit_ns", Unit: "ns", Target: measure.AtMost(200)}, wall, harness.One(func(ctx context.Context) (float64, error) {
		p, err := pacer.New(pacer.Config{})
		if err != nil {
			return 0, err
		}
		defer p.Close()
		us, err := rig.Timed(blocks, func() error {
			for range block {
				c, err := p.Acquire(ctx, 0, 4096)
				if err != nil {
					return err
				}
				c.Release()
			}
			return nil
		})
		return 1000 * us / block, err
	}))
}

// limit puts the link of a pass in place, on the requester's side.
func limit(rate float64, queue int) (unlimit func() error, err error) {
	if rate == 0 || lab.Topology() != "wire" {
		return func() error { return nil }, nil
	}
	if err := lab.LimitIngressQueue("h0", int64(rate), queue); err != nil {
		return nil, err
	}
	return func() error { return lab.UnlimitIngress("h0") }, nil
}
