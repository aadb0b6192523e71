//go:build linux

package verbs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// Two queue pairs on one queue at each side: one's receiver and requester come and
// go, with resets and errors, while the other one loses nothing.
func TestReceiversShareAQueue(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
		mk := func(s *rig.Side) *rig.Side {
			q, err := s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, GID: s.QP.GID(), KeepReset: true})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, q.Close()) })
			return &rig.Side{Dev: s.Dev, PD: s.PD, CQ: s.CQ, QP: q, MR: s.MR}
		}
		c, d := mk(a), mk(b)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var sent, got atomic.Uint64
		rb, ra := newReceiver(t, b, verbs.ReceiverConfig{Size: 64, Depth: 2}), newRequester(t, a, verbs.RequesterConfig{})
		long, cancelLong := context.WithCancel(context.Background())
		defer cancelLong()
		var order atomic.Uint64
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				binary.NativeEndian.PutUint64(a.MR.Bytes(), sent.Load())
				if !assert.NoError(t, ra.Send(context.Background(), a.MR.SGE(0, 8))) {
					return
				}
				sent.Add(1)
			}
		})
		var rg sync.WaitGroup
		for g := range 3 {
			rg.Go(func() {
				buf := make([]byte, 64)
				for {
					ctx, cancel := long, context.CancelFunc(func() {})
					if g > 0 {
						ctx, cancel = context.WithTimeout(long, time.Duration(rand.IntN(3000))*time.Microsecond)
					}
					_, err := rb.Receive(ctx, buf)
					cancel()
					switch {
					case err == nil:
						got.Add(1)
						order.Add(binary.NativeEndian.Uint64(buf))
					case long.Err() != nil:
						return
					case !errors.Is(err, context.DeadlineExceeded):
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				time.Sleep(3 * time.Millisecond)
				b.CQ.Resize(300 + 50*(n%5))
			}
		})
		rounds := 0
		for end := time.Now().Add(pressureTime()); time.Now().Before(end); rounds++ {
			for _, s := range []*rig.Side{c, d} {
				require.NoError(t, s.Reset())
				require.NoError(t, s.QP.Init())
			}
			rc, err := verbs.NewReceiver(c.QP, verbs.ReceiverConfig{Size: 64, Depth: 1 + rand.IntN(4)})
			require.NoError(t, err)
			rd, err := verbs.NewReceiver(d.QP, verbs.ReceiverConfig{Size: 64, Depth: 1 + rand.IntN(4)})
			require.NoError(t, err)
			require.NoError(t, c.QP.Connect(d.Endpoint(t), verbs.ConnectConfig{AckTimeout: time.Millisecond, Retries: 1}))
			require.NoError(t, d.QP.Connect(c.Endpoint(t), verbs.ConnectConfig{AckTimeout: time.Millisecond, Retries: 1}))
			sc, err := verbs.NewRequester(c.QP, verbs.RequesterConfig{})
			require.NoError(t, err)
			sd, err := verbs.NewRequester(d.QP, verbs.RequesterConfig{})
			require.NoError(t, err)
			var in sync.WaitGroup
			for _, r := range []*verbs.Receiver{rc, rd, rc, rd} {
				in.Go(func() {
					buf := make([]byte, 64)
					for {
						ctx, cancel := context.WithTimeout(long, time.Duration(rand.IntN(2000))*time.Microsecond)
						_, err := r.Receive(ctx, buf)
						cancel()
						if err != nil && !errors.Is(err, context.DeadlineExceeded) {
							return
						}
					}
				})
			}
			for s, side := range map[*verbs.Requester]*rig.Side{sc: c, sd: d} {
				from := side.MR.SGE(64, 8)
				in.Go(func() {
					for {
						ctx, cancel := context.WithTimeout(long, time.Duration(rand.IntN(3000))*time.Microsecond)
						err := s.Send(ctx, from)
						cancel()
						if err != nil && !errors.Is(err, context.DeadlineExceeded) || side.QP.Err() != nil {
							return
						}
					}
				})
			}
			time.Sleep(time.Duration(rand.IntN(10000)) * time.Microsecond)
			acts := []func(){
				func() { rc.Close() }, func() { rd.Close() }, func() { sc.Close() }, func() { sd.Close() },
				func() { c.QP.ToError() }, func() { d.QP.ToError() }, func() { c.Reset() }, func() { d.Reset() },
			}
			rand.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
			for _, f := range acts {
				in.Go(f)
			}
			if !inTime(t, 20*time.Second, "a round", in.Wait) {
				break
			}
			for _, x := range []interface{ Close() error }{rc, rd, sc, sd} {
				if !inTime(t, 10*time.Second, "Close", func() { x.Close() }) {
					return
				}
			}
		}
		close(stop)
		inTime(t, 10*time.Second, "senders", wg.Wait)
		assert.Eventually(t, func() bool { return got.Load() == sent.Load() }, time.Minute, time.Millisecond)
		cancelLong()
		inTime(t, 10*time.Second, "receivers", rg.Wait)
		n := sent.Load()
		t.Log(rounds, "rounds", n, "messages")
		assert.Equal(t, n*(n-1)/2, order.Load(), "not each message once")
	})
}

// What shared receive queues receive would have no owner in a receiver's completion
// queue.
func TestReceiverBesideSharedQueue(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	srq, err := s.PD.CreateSRQ(verbs.SRQConfig{MaxWR: 16})
	require.NoError(t, err)
	defer func() { require.NoError(t, srq.Close()) }()
	cfg := verbs.QPConfig{SendCQ: s.CQ, GID: s.QP.GID(), SRQ: srq}
	q, err := s.PD.CreateQP(cfg)
	require.NoError(t, err)
	_, err = verbs.NewReceiver(s.QP, verbs.ReceiverConfig{Size: 64})
	require.ErrorIs(t, err, verbs.ErrInUse)
	require.NoError(t, q.Close())
	newReceiver(t, s, verbs.ReceiverConfig{Size: 64})
	_, err = s.PD.CreateQP(cfg)
	require.ErrorIs(t, err, verbs.ErrInUse)
}
