// Package native is what the module costs on this machine's own CPU: its operations beside loops in
// C on the same simulated devices (docs/simhca.md), in this process.
package native

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// Suite has a row for each operation. SIMHCA must be "mlx5,mlx5,efa", and the program must have been built
// with the tag simhca.
func Suite(e harness.Env) []harness.Benchmark {
	return suite(size{blocks: 40, block: 1000}, ucxRows(e.SimHCA)...)
}

func suite(s size, more ...row) []harness.Benchmark {
	var list []harness.Benchmark
	for _, r := range slices.Concat(instrument(), deviceTimes(), verbsRows(), systemRows(), cacheRows(), srdRows(), more) {
		list = append(list, r.benchmark(s))
	}
	return list
}

// read is the bytes of small READs.
const read = 64

const readLoop = "post and poll in C"

// reads are lists of READs by a loop in C.
func reads(o *opened, es [2]end, size, list int) (operations, error) {
	l, err := o.polled(es)
	return func(_ context.Context, n int) (time.Duration, error) { return l.Reads(size, list, 0, n) }, err
}

// planted is a known cost, in nanoseconds.
const planted = 50

// instrument is checked in each run: an empty loop of 50 ns in each READ shows at its size.
func instrument() []row {
	return []row{{name: "planted_50ns", inC: true, target: measure.AtLeastOver(0.8 * planted), baseline: readLoop, open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		const turns = 1_000_000
		took := time.Duration(1 << 62)
		for range 1000 { // for 0.3 s: a CPU that others slow down for a while would plant too little
			took = min(took, standin.Spin(turns))
		}
		extra := int(planted * turns / took.Nanoseconds())
		l, err := o.polled(es)
		with := func(extra int) operations {
			return func(_ context.Context, n int) (time.Duration, error) { return l.Reads(read, 1, extra, n) }
		}
		return with(extra), with(0), err
	}}}
}

// deviceClock is that of the simulated devices: [simhca.Time].
var deviceClock func(on bool) time.Duration

// deviceTimes are what the devices themselves take for requests of the loops in C: what their libraries
// and the loops take is the rest of those.
func deviceTimes() []row {
	of := func(name string, per int, loop func(l *standin.Requester, n int) (time.Duration, error)) row {
		return row{name: "device_" + name, inC: true, per: per, few: per, open: func(o *opened) (ours, base operations, err error) {
			if deviceClock == nil {
				return nil, nil, errors.New("built without the tag simhca")
			}
			es, err := o.ends()
			if err != nil {
				return nil, nil, err
			}
			l, err := o.polled(es)
			return func(_ context.Context, n int) (time.Duration, error) {
				deviceClock(true)
				_, err := loop(l, n)
				return deviceClock(false), err
			}, nil, err
		}}
	}
	return []row{
		of("read_64B", 1, func(l *standin.Requester, n int) (time.Duration, error) { return l.Reads(read, 1, 0, n) }),
		of("read_16KiB", 1, func(l *standin.Requester, n int) (time.Duration, error) { return l.Reads(16<<10, 1, 0, n) }),
		of("list32", keys, func(l *standin.Requester, n int) (time.Duration, error) { return l.Reads(read, keys, 0, n) }),
		of("update", 1, func(l *standin.Requester, n int) (time.Duration, error) { return l.Updates(read, n) }),
	}
}

// besideReads is a row with a READ in C as its baseline.
func besideReads(name string, target *measure.Target, open func(o *opened, es [2]end) (operations, error)) row {
	return row{name: name, target: target, baseline: readLoop, open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		if ours, err = open(o, es); err != nil {
			return nil, nil, err
		}
		base, err = reads(o, es, read, 1)
		return ours, base, err
	}}
}
