package verbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// Native needs no device: it is the time that the Go API adds to post and poll in
// C, on this machine's own CPU.
func Native(harness.Env) []harness.Benchmark {
	overC := func(name string, batch int, limit float64) harness.Benchmark {
		return harness.Plain(harness.Figure{Name: name, Unit: "ns", Target: measure.AtMost(limit)}, []string{harness.Wall},
			harness.One(func(context.Context) (float64, error) { return postPollOverC(batch) }))
	}
	dispatched := harness.Plain(harness.Figure{Name: "dispatch_ns", Unit: "ns", Target: measure.AtMost(40)}, []string{harness.Wall},
		harness.One(func(context.Context) (float64, error) { return dispatchNS() }))
	return []harness.Benchmark{overC("post_poll_ns_over_c_batch1", 1, 120), overC("post_poll_ns_over_c_batch64", 64, 6), dispatched}
}

// postPollOverC returns the time per work request through the Go API minus that of
// the same loop in C, both over a queue pair that does nothing. Blocks of both
// take turns, and the best block of each counts: on a shared machine all noise
// is upwards.
func postPollOverC(batch int) (float64, error) {
	s, err := standin.New()
	if err != nil {
		return 0, err
	}
	defer s.Close()
	qp, cq := driver.Wrap(s.QP(), s.CQ(), batch)
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

// owner gets completions.
type owner struct{ got int }

func (o *owner) Completed(uint64, *verbs.WC) { o.got++ }
func (o *owner) Lost(error)                  {}

// dispatchNS returns the time that it takes to bring one completion of a batch of 64 to its
// owner, one of four: what a round of post and poll takes longer that way.
// No goroutine is woken.
func dispatchNS() (float64, error) {
	const batch, blocks, rounds = 64, 20, 3000
	var best [2]time.Duration
	for k, dispatched := range []bool{false, true} {
		best[k] = 1 << 62
		s, err := standin.New()
		if err != nil {
			return 0, err
		}
		defer s.Close()
		s.Name()
		qp, cq := driver.Wrap(s.QP(), s.CQ(), 4*batch)
		var owners [4]owner
		var ds [4]*verbs.Dispatcher
		for i := 0; dispatched && i < len(owners); i++ {
			if ds[i], err = cq.Dispatch(&owners[i], batch); err != nil {
				return 0, err
			}
		}
		newBatch := qp.NewBatch
		if dispatched {
			newBatch = func(n int) (*verbs.Batch, error) { return ds[0].NewBatch(qp, n) }
		}
		b, err := newBatch(batch)
		if err != nil {
			return 0, err
		}
		wcs := make([]verbs.WC, batch)
		for range blocks {
			start := time.Now()
			for range rounds {
				for i := range wcs {
					n := uint64(i)
					if dispatched {
						n = ds[i%len(ds)].ID(n)
					}
					b.Write(n, verbs.Signaled, verbs.Remote{Addr: 0x2000, RKey: 9}, verbs.SGE{Addr: 0x1000, Length: 64, LKey: 7})
				}
				if dispatched {
					_, found, err := ds[0].PostPoll(b, 0)
					if n := found.Dispatch(); err != nil || n != batch {
						return 0, fmt.Errorf("%d completions: %w", n, err)
					}
					continue
				}
				if _, n, err := b.PostPoll(cq, wcs, 0); err != nil || n != batch {
					return 0, fmt.Errorf("%d completions: %w", n, err)
				}
			}
			best[k] = min(best[k], time.Since(start))
		}
		if got := owners[0].got; dispatched && got != blocks*rounds*batch/len(owners) {
			return 0, fmt.Errorf("the first owner got %d completions", got)
		}
	}
	return float64(best[1]-best[0]) / (rounds * batch), nil
}
