// Package native is what the module costs on this machine's own CPU: its operations beside loops in
// C on the same simulated devices (docs/simhca.md), in this process.
package native

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/verbs"
)

// Suite has a row for each operation. SIMHCA must be "mlx5,mlx5,efa", and the program must have been built
// with the tag simhca.
func Suite(harness.Env) []harness.Benchmark { return suite(size{blocks: 20, block: 2000}) }

func suite(s size) []harness.Benchmark {
	var list []harness.Benchmark
	for _, r := range rows() {
		list = append(list, r.benchmark(s))
	}
	return list
}

func rows() []row { return []row{batchRead()} }

// read is the bytes of small READs.
const read = 64

const readLoop = "post and poll in C"

// reads are lists of READs by a loop in C.
func reads(o *opened, es [2]end, size, list, extra int) (operations, error) {
	l, err := o.polled(es)
	return func(_ context.Context, n int) (time.Duration, error) { return l.Reads(size, list, extra, n) }, err
}

// batchRead is a READ by a batch of one and one crossing.
func batchRead() row {
	return row{name: "batch_read", target: measure.AtMostOver(60), baseline: readLoop, open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		c, err := o.connect(es, verbs.CQConfig{PollOnly: true})
		if err != nil {
			return nil, nil, err
		}
		b, err := c.qp.NewBatch(1)
		if err != nil {
			return nil, nil, err
		}
		from, into := c.far.mr.Region().At(0), c.near.mr.SGE(0, read)
		var wcs [1]verbs.WC
		ours = each(func(context.Context) error {
			b.Read(1, verbs.Signaled, from, into)
			_, n, err := b.PostPoll(c.cq, wcs[:], 1000)
			for n == 0 && err == nil {
				n, err = c.cq.PollSpin(wcs[:], 1000)
			}
			if err != nil {
				return err
			}
			return wcs[0].Err()
		})
		base, err = reads(o, es, read, 1, 0)
		return ours, base, err
	}}
}
