package verbs

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/verbs"
)

// Native needs no device: it is the time that the Go API adds to post and poll in
// C, on this machine's own CPU.
func Native(harness.Env) []harness.Benchmark {
	overC := func(name string, batch int, limit float64) harness.Benchmark {
		return harness.Plain(harness.Figure{Name: name, Unit: "ns", Target: measure.AtMost(limit)}, []string{harness.Wall},
			harness.One(func(context.Context) (float64, error) { return postPollOverC(batch) }))
	}
	return []harness.Benchmark{overC("post_poll_ns_over_c_batch1", 1, 120), overC("post_poll_ns_over_c_batch64", 64, 6)}
}

// postPollOverC is the time per work request through the Go API minus that of
// the same loop in C, both over a queue pair that does nothing. Blocks of both
// take turns, and the best block of each counts: on a shared machine all noise
// is upwards.
func postPollOverC(batch int) (float64, error) {
	s, err := standin.New()
	if err != nil {
		return 0, err
	}
	defer s.Close()
	qp, cq := verbs.Wrap(s.QP(), s.CQ(), batch)
	b, err := qp.NewBatch(batch)
	if err != nil {
		return 0, err
	}
	wcs := make([]verbs.WC, batch)
	const blocks = 20
	rounds := 200_000 / batch
	bestGo, bestC := time.Duration(1<<62), time.Duration(1<<62)
	for range blocks {
		start := time.Now()
		for range rounds {
			for i := range wcs {
				n := uint64(i)
				b.Write(n, verbs.Signaled, verbs.Remote{Addr: 0x2000 + 64*n, RKey: 9}, verbs.SGE{Addr: 0x1000 + 64*n, Length: 64, LKey: 7})
			}
			if _, err := b.Post(); err != nil {
				return 0, err
			}
			n, err := cq.Poll(wcs)
			if err != nil {
				return 0, err
			}
			for i := range wcs[:n] {
				if wcs[i].Status() != verbs.WCSuccess {
					return 0, wcs[i].Err()
				}
			}
		}
		bestGo = min(bestGo, time.Since(start))
		d := s.PostPollLoop(rounds, batch)
		if d < 0 {
			return 0, errors.New("the C loop failed")
		}
		bestC = min(bestC, d)
	}
	return float64(bestGo-bestC) / float64(rounds*batch), nil
}
