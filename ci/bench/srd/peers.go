package srd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/srd"
)

// firstMessages compare the first message to a peer of one's deployment with the next
// one. The way to the peer's port is known; the peer knows the way back if it has talked
// to another endpoint of the sender's host before.
func firstMessages() []harness.Benchmark {
	return []harness.Benchmark{firstMessage("first_message", false), firstMessage("first_message_known_host", true)}
}

func firstMessage(name string, known bool) harness.Benchmark {
	const peers = 12
	cfg := srd.Config{Key: []byte("0123456789abcdef"), Paths: 2, Receives: 32}
	side := func(first bool) harness.Pass {
		return one(func(ctx context.Context) (v float64, err error) {
			c, s, err := rig.Endpoints()
			if err != nil {
				return 0, err
			}
			a, err := open(c, cfg)
			if err != nil {
				return 0, err
			}
			other, err := open(c, cfg)
			if err != nil {
				return 0, errors.Join(err, a.Close())
			}
			all := []*srd.Endpoint{other}
			ctx, stop := context.WithCancel(ctx)
			var work sync.WaitGroup
			work.Go(func() { drain(ctx, other) })
			defer func() {
				stop()
				work.Wait()
				for _, ep := range append(all, a) {
					err = errors.Join(err, ep.Close())
				}
			}()
			b := make([]byte, small)
			var ns []int64
			for i := range peers {
				ep, err := open(s, cfg)
				if err != nil {
					return 0, err
				}
				all = append(all, ep)
				work.Go(func() { drain(ctx, ep) })
				if known {
					if err := ep.Send(ctx, other.Addr(), b); err != nil {
						return 0, err
					}
				}
				for k := range 3 {
					// The peer was made by this process, on the only CPU, which is no part
					// of a message to it. Each message comes after the same pause.
					time.Sleep(calming)
					start := time.Now()
					if err := a.Send(ctx, ep.Addr(), b); err != nil {
						return 0, err
					}
					if i > 1 && (first && k == 0 || !first && k == 2) {
						ns = append(ns, int64(time.Since(start)))
					}
				}
			}
			return rig.MedianMicros(ns), nil
		})
	}
	return harness.Compare(harness.Figure{Name: name, Unit: "us", Target: measure.AtMost(1.5)}, instructions,
		side(true), harness.Side{Name: "a later message", Run: side(false)})
}

// incast has many endpoints send to one with a link that is the narrowest place: what of the link
// is used, and how long 99 % of the messages take.
func incast() harness.Benchmark {
	const (
		senders = 32
		// Bits a second: less than what the only CPU of the instruction clock, which is both
		// ends, carries.
		link = 10e6
		size = 16000
		each = 20
	)
	pass := func(ctx context.Context) (v []float64, err error) {
		c, s, err := rig.Endpoints()
		if err != nil {
			return nil, err
		}
		b, err := open(s, srd.Config{})
		if err != nil {
			return nil, err
		}
		all := []*srd.Endpoint{b}
		draining, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- drain(draining, b) }()
		defer func() {
			stop()
			<-done
			for _, ep := range all {
				err = errors.Join(err, ep.Close())
			}
		}()
		var streams []*streamer
		for range senders {
			ep, err := open(c, srd.Config{Paths: 2, Receives: 64})
			if err != nil {
				return nil, err
			}
			all = append(all, ep)
			st, err := newStreamer(ep, b.Addr(), size, 32)
			if err != nil {
				return nil, err
			}
			if err := st.send(ctx, 2); err != nil {
				return nil, err
			}
			streams = append(streams, st)
		}
		if err := lab.LimitIngress(s.Netdev, link); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, lab.UnlimitIngress(s.Netdev)) }()
		var work sync.WaitGroup
		errs := make([]error, senders)
		start := time.Now()
		for i, st := range streams {
			work.Go(func() { errs[i] = st.send(ctx, each) })
		}
		work.Wait()
		bits := float64(senders*each*size*8) / time.Since(start).Seconds()
		var took []time.Duration
		for _, st := range streams {
			took = append(took, st.took...)
		}
		slices.Sort(took)
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		return []float64{bits / link, float64(took[len(took)*99/100]) / 1e3}, nil
	}
	return harness.Benchmark{Name: "incast_32", Judged: both, Sides: []harness.Side{{Name: "ours", Run: pass}}, Figures: []harness.Figure{
		{Name: "incast_32", Unit: "of the link", Of: "ours", Target: measure.AtLeast(0.9)},
		{Name: "incast_32_p99", Unit: "us", Of: "ours", Value: 1},
	}}
}
