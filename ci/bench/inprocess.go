package main

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/verbs"
)

// readAgainstC compares READs through the Go API with a C loop on the same
// queue pair in the same process, in blocks of both in turn.
func readAgainstC() benchmark {
	const block = 300
	var r *rig
	with := func(f func(*rig) (float64, error)) pass {
		return func(context.Context) (float64, error) {
			if r == nil {
				var err error
				if r, err = newRig(); err != nil {
					return 0, err
				}
			}
			return f(r)
		}
	}
	return benchmark{
		name: "read_lat_64B_c", unit: "us", baseline: "C loop on the same queue pair", target: measure.AtMost(1.04),
		clocks: []string{"instructions"},
		ours:   with(func(r *rig) (float64, error) { return r.goReads(block) }),
		base:   with(func(r *rig) (float64, error) { return r.cReads(block) }),
	}
}

// rig is two connected queue pairs in this process; it lives as long as the
// process does.
type rig struct {
	qp    *verbs.QP
	cq    *verbs.CQ
	mr    *verbs.MR
	peer  *verbs.MR
	batch *verbs.Batch
}

func newRig() (*rig, error) { return newRigWith(4096, verbs.CQConfig{PollOnly: true}) }

func newRigWith(size int, cc verbs.CQConfig) (*rig, error) {
	c, s, err := endpoints()
	if err != nil {
		return nil, err
	}
	var qps [2]*verbs.QP
	var cqs [2]*verbs.CQ
	var mrs [2]*verbs.MR
	for i, name := range []string{c.Device, s.Device} {
		dev, err := verbs.Open(name, verbs.DeviceConfig{})
		if err != nil {
			return nil, err
		}
		pd, err := dev.AllocPD()
		if err != nil {
			return nil, err
		}
		if cqs[i], err = dev.CreateCQ(cc); err != nil {
			return nil, err
		}
		if qps[i], err = pd.CreateQP(verbs.QPConfig{SendCQ: cqs[i], MaxSendWR: 32}); err != nil {
			return nil, err
		}
		if mrs[i], err = pd.AllocMR(size, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic}); err != nil {
			return nil, err
		}
	}
	for i := range qps {
		peer, err := qps[1-i].Endpoint()
		if err != nil {
			return nil, err
		}
		if err := qps[i].Connect(peer, verbs.ConnectConfig{}); err != nil {
			return nil, err
		}
	}
	batch, err := qps[0].NewBatch(1)
	return &rig{qps[0], cqs[0], mrs[0], mrs[1], batch}, err
}

const readSize = 64

// do posts the batch of one signaled request and polls until it has completed.
func (r *rig) do(wcs *[1]verbs.WC) error {
	_, n, err := r.batch.PostPoll(r.cq, wcs[:], 1000)
	for n == 0 && err == nil {
		n, err = r.cq.PollSpin(wcs[:], 1000)
	}
	if err != nil {
		return err
	}
	return wcs[0].Err()
}

// goReads answers the median of n READs in microseconds.
func (r *rig) goReads(n int) (float64, error) {
	var wcs [1]verbs.WC
	local, at := r.mr.SGE(0, readSize), r.peer.Region().At(0)
	return timed(n, func() error {
		r.batch.Read(1, verbs.Signaled, at, local)
		return r.do(&wcs)
	})
}

func (r *rig) cReads(n int) (float64, error) { return r.cReadsWith(n, 0) }

// cReadsWith puts extra turns of an empty loop into each READ.
func (r *rig) cReadsWith(n, extra int) (float64, error) {
	ns := make([]int64, n)
	at := r.peer.Region()
	if err := standin.ReadLoop(r.qp.Raw(), r.cq.Raw(), r.mr.SGE(0, readSize), at.Addr, at.RKey, extra, ns); err != nil {
		return 0, err
	}
	return medianMicros(ns), nil
}

// nativeSuite needs no device: it is the time that the Go API adds to post and
// poll, on this machine's own CPU.
func nativeSuite(env) []benchmark {
	overC := func(name string, batch int, limit float64) benchmark {
		return benchmark{name: name, unit: "ns", target: measure.AtMost(limit), clocks: []string{"wall"}, only: true,
			ours: func(context.Context) (float64, error) { return postPollOverC(batch) }}
	}
	return []benchmark{overC("post_poll_ns_batch1", 1, 120), overC("post_poll_ns_batch64", 64, 6)}
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
