package verbs

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/verbs"
)

// readAgainstC compares READs through the Go API with a C loop on the same
// queue pair in the same process, in blocks of both in turn.
func readAgainstC() harness.Benchmark {
	const block = 300
	r := rig.Lazy(rig.NewRC)
	f := harness.Figure{Name: "read_lat_64B_c", Unit: "us", Target: measure.AtMost(1.04)}
	b := harness.Compare(f, instructions,
		r.Pass(func(r *rig.RC, _ context.Context) (float64, error) { return r.GoReads(block) }),
		harness.Side{Name: "C loop on the same queue pair", Run: r.Pass(func(r *rig.RC, _ context.Context) (float64, error) { return r.CReads(block, 0) })})
	b.Also = []string{harness.Wall}
	return b
}

// readSync is Requester.Read with nothing configured, one call after the other,
// beside perftest, which polls.
func readSync() harness.Benchmark {
	const block = 300
	r := rig.Lazy(func() (*rig.RC, error) { return rig.NewRCWith(4096, verbs.CQConfig{}, verbs.ConnectConfig{}) })
	ours := func(g *rig.RC, ctx context.Context) (us float64, err error) {
		q, err := verbs.NewRequester(g.QP, verbs.RequesterConfig{})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, q.Close()) }()
		from, into := g.Peer.Region().At(0), g.MR.SGE(0, 64)
		return rig.Timed(block, func() error { return q.Read(ctx, from, into) })
	}
	args := []string{"-s", "64", "-n", "500"}
	f := harness.Figure{Name: "read_sync_lat", Unit: "us", Target: measure.AtMost(1.08)}
	return harness.Compare(f, instructions, r.Pass(ours), harness.Side{Name: "ib_read_lat", Run: rig.Perftest("ib_read_lat", rig.LatTypical, args)})
}

// maskedCAS compares an emulated masked compare and swap, without
// contention, with one CMP_SWAP on the same queue pair.
func maskedCAS() harness.Benchmark {
	const block = 200
	r := rig.Lazy(rig.NewRC)
	masked := func(g *rig.RC, ctx context.Context) (us float64, err error) {
		q, err := verbs.NewRequester(g.QP, verbs.RequesterConfig{})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, q.Close()) }()
		m, err := verbs.NewMasked(q, g.MR, 0, verbs.MaskedConfig{})
		if err != nil {
			return 0, err
		}
		at, i := g.Peer.Region().At(0), uint64(0)
		return rig.Timed(block, func() error {
			i++
			_, err := m.CmpSwap(ctx, at, verbs.MaskedCmpSwap{Swap: i, SwapMask: 0xffff})
			return err
		})
	}
	plain := func(g *rig.RC, _ context.Context) (float64, error) {
		at, local, i := g.Peer.Region().At(8), g.MR.SGE(8, 8), uint64(0)
		var wcs [1]verbs.WC
		return rig.Timed(block, func() error {
			g.Batch.CmpSwap(i, verbs.Signaled, at, i, i+1, local)
			i++
			return g.Do(&wcs)
		})
	}
	f := harness.Figure{Name: "masked_cas_lat", Unit: "us", Target: measure.AtMost(2.1)}
	return harness.Compare(f, instructions, r.Pass(masked), harness.Side{Name: "one CMP_SWAP", Run: r.Pass(plain)})
}
