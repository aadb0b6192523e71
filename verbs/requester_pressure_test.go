//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// inTime runs f, which must end in time.
func inTime(t *testing.T, d time.Duration, what string, f func()) bool {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		t.Errorf("%s hangs", what)
		return false
	}
}

// bare is a requester that the test closes itself.
func bare(t *testing.T, s *rig.Side) *verbs.Requester {
	r, err := verbs.NewRequester(s.QP, verbs.RequesterConfig{})
	require.NoError(t, err)
	return r
}

// What goroutines do to a requester and its queue pair at the same time.
func TestRequesterUnderPressure(t *testing.T) {
	t.Run("second Wait of an old Pending", func(t *testing.T) {
		a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 1}, verbs.CQConfig{}, verbs.ConnectConfig{})
		r := bare(t, a)
		ctx, far := t.Context(), b.MR.Region()
		w := verbs.WriteWR(far.At(0), a.MR.SGE(0, 8))
		p1, err := r.Start(ctx, w)
		require.NoError(t, err)
		require.NoError(t, p1.Wait(ctx))
		p2, err := r.Start(ctx, w)
		require.NoError(t, err)
		require.NoError(t, p2.Wait(ctx))
		if err := p1.Wait(ctx); !errors.Is(err, verbs.ErrState) {
			t.Errorf("second Wait: %v", err)
		}
		inTime(t, 5*time.Second, "Close", func() { r.Close() })
	})
	t.Run("failed receive", func(t *testing.T) {
		pp := rig.Ports(t)
		a, b := rig.NewSide(t, pp[0], verbs.QPConfig{}, verbs.CQConfig{}), rig.NewSide(t, pp[1], verbs.QPConfig{}, verbs.CQConfig{})
		rcq, err := a.Dev.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, rcq.Close()) })
		q, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, RecvCQ: rcq, GID: pp[0].GID})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, q.Close()) })
		e, err := q.Endpoint()
		require.NoError(t, err)
		require.NoError(t, q.Connect(b.Endpoint(t), verbs.ConnectConfig{}))
		require.NoError(t, b.QP.Connect(e, verbs.ConnectConfig{}))
		r, err := verbs.NewRequester(q, verbs.RequesterConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		rb, err := q.NewRecvBatch(1)
		require.NoError(t, err)
		rb.Recv(1, a.MR.SGE(0, 8))
		_, err = rb.Post()
		require.NoError(t, err)
		sb := b.Batch(t, 1)
		sb.Send(1, verbs.Signaled, b.MR.SGE(0, 64))
		_, err = sb.Post()
		require.NoError(t, err)
		var wcs [1]verbs.WC
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n, err := rcq.Wait(ctx, wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
		t.Log(wcs[0].Status())
		time.Sleep(50 * time.Millisecond)
		if q.Err() == nil {
			t.Error("a receive failed, was polled, and the queue pair stands for Err")
		}
		begin := time.Now()
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Minute)
		defer cancel2()
		err = r.Write(ctx2, b.MR.Region().At(0), a.MR.SGE(0, 8))
		t.Logf("then a WRITE after %v: %v; Err %v", time.Since(begin), err, q.Err())
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("the WRITE hung")
		}
	})
	t.Run("batch of another queue pair", func(t *testing.T) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
		second, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, GID: a.QP.GID()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, second.Close()) })
		peer, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, GID: b.QP.GID()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, peer.Close()) })
		e, err := peer.Endpoint()
		require.NoError(t, err)
		require.NoError(t, second.Connect(e, verbs.ConnectConfig{}))
		e, err = second.Endpoint()
		require.NoError(t, err)
		require.NoError(t, peer.Connect(e, verbs.ConnectConfig{}))
		newRequester(t, a, verbs.RequesterConfig{})
		bt, err := second.NewBatch(1)
		require.NoError(t, err)
		bt.Write(7, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
		if _, err = bt.Post(); !errors.Is(err, verbs.ErrInUse) {
			t.Errorf("posted past the requester: %v", err)
		}
	})
	t.Run("queue full though all wait", func(t *testing.T) {
		a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 2}, verbs.CQConfig{}, verbs.ConnectConfig{})
		r := newRequester(t, a, verbs.RequesterConfig{})
		ctx, far := context.Background(), b.MR.Region()
		var wg sync.WaitGroup
		var mu sync.Mutex
		full := map[string]int{}
		for g := range 4 {
			wg.Go(func() {
				for range 300 {
					p, err := r.Start(ctx, verbs.WriteWR(far.At(0), a.MR.SGE(8*g, 8)))
					if err != nil {
						mu.Lock()
						full[err.Error()]++
						mu.Unlock()
						continue
					}
					runtime.Gosched()
					if err := p.Wait(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if inTime(t, 20*time.Second, "", wg.Wait) && len(full) > 0 {
			t.Error(full)
		}
	})
	t.Run("second Close at the same time", func(t *testing.T) {
		a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
		r := newRequester(t, a, verbs.RequesterConfig{})
		var wg sync.WaitGroup
		wg.Go(func() { r.Send(context.Background(), a.MR.SGE(0, 8)) })
		underWay(t, r) // else Close has nothing to take down
		time.Sleep(50 * time.Millisecond)
		wg.Go(func() { r.Close() })
		for a.QP.Err() == nil {
			runtime.Gosched()
		}
		require.NoError(t, r.Close())
		if err := a.QP.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	t.Run("revived", func(t *testing.T) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
		r := bare(t, a)
		ctx, far := t.Context(), b.MR.Region()
		bad := 0
		for range 100 {
			require.NoError(t, b.Reset())
			var ps []verbs.Pending
			for range 8 {
				p, err := r.Start(ctx, verbs.WriteWR(far.At(0), a.MR.SGE(0, 8)))
				require.NoError(t, err)
				ps = append(ps, p)
			}
			require.NoError(t, a.QP.ToError())
			for _, p := range ps {
				require.Error(t, p.Wait(ctx))
			}
			if !inTime(t, 5*time.Second, "ToReset", func() { require.NoError(t, a.QP.ToReset()) }) {
				return
			}
			require.NoError(t, a.QP.Init())
			require.NoError(t, b.QP.Init())
			require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
			err := a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{})
			for k := 0; k < 20 && err == nil; k++ {
				err = r.Write(ctx, far.At(0), a.MR.SGE(0, 8))
			}
			if err != nil {
				if bad++; bad == 1 {
					t.Logf("Err %v: %v", a.QP.Err(), err)
				}
				time.Sleep(20 * time.Millisecond)
				a.QP.ToReset()
				a.QP.Init()
				b.Reset()
				b.QP.Init()
				require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
				require.NoError(t, a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{}))
			}
		}
		if bad > 0 {
			t.Errorf("%d of 100 new connections were taken down", bad)
		}
		inTime(t, 5*time.Second, "Close", func() { r.Close() })
	})
	t.Run("credits", func(t *testing.T) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{PollOnly: true}, verbs.ConnectConfig{})
		r := bare(t, a)
		far := b.MR.Region()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for g := range 3 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						r.Write(context.Background(), far.At(0), a.MR.SGE(8*g, 8))
					}
				}
			})
		}
		end := time.Now().Add(3 * time.Second)
		n := 0
		for ; time.Now().Before(end); n++ {
			if !inTime(t, 5*time.Second, "ToReset", func() { a.QP.ToReset() }) {
				return
			}
			if have, capacity := verbs.Credits(r); have > capacity {
				t.Errorf("round %d: %d credits of %d", n, have, capacity)
				break
			}
			a.QP.Init()
			b.Reset()
			b.QP.Init()
			b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{})
			a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{})
			time.Sleep(time.Millisecond)
		}
		t.Log(n, "rounds")
		close(stop)
		if inTime(t, 5*time.Second, "calls", wg.Wait) {
			inTime(t, 5*time.Second, "Close", func() { r.Close() })
		}
	})
	for name, cc := range map[string]verbs.CQConfig{"events": {}, "polled": {PollOnly: true}} {
		for _, cancellable := range []bool{false, true} {
			t.Run(fmt.Sprint("reset under a waiting call ", name, " ", cancellable), func(t *testing.T) {
				a, _ := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
				r := bare(t, a)
				ctx := context.Background()
				if cancellable {
					ctx = t.Context()
				}
				var wg sync.WaitGroup
				wg.Go(func() { r.Send(ctx, a.MR.SGE(0, 8)) })
				time.Sleep(100 * time.Millisecond)
				begin := time.Now()
				if inTime(t, 8*time.Second, "ToReset", func() { a.QP.ToReset() }) {
					t.Log(time.Since(begin))
					wg.Wait()
					r.Close()
				}
			})
		}
	}
	for name, cc := range map[string]verbs.CQConfig{"events": {}, "polled": {PollOnly: true}} {
		t.Run("no room and a context that ended "+name, func(t *testing.T) {
			a, _ := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 1}, cc, verbs.ConnectConfig{})
			r := bare(t, a)
			p, err := r.Start(t.Context(), verbs.SendWR(a.MR.SGE(0, 8))) // no receive
			require.NoError(t, err)
			time.Sleep(20 * time.Millisecond)
			ended, cancel := context.WithCancel(t.Context())
			if name == "events" {
				cancel()
			} else {
				time.AfterFunc(50*time.Millisecond, cancel)
			}
			if inTime(t, 4*time.Second, "a call whose context has ended", func() {
				if err := r.Send(ended, a.MR.SGE(0, 8)); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}) {
				go p.Wait(t.Context())
				inTime(t, 6*time.Second, "Close", func() { r.Close() })
			} else {
				inTime(t, 8*time.Second, "Close", func() { r.Close() })
			}
		})
	}
}

func TestRequesterNeeds(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{SolicitedOnly: true}, verbs.ConnectConfig{})
	_, err := verbs.NewRequester(a.QP, verbs.RequesterConfig{})
	require.ErrorIs(t, err, verbs.ErrAttributes, "nothing would wake it")
	q, _ := driver.Wrap(driver.RawQP(a.QP), driver.RawCQ(a.CQ), 8)
	_, err = verbs.NewRequester(q, verbs.RequesterConfig{})
	require.ErrorIs(t, err, verbs.ErrAttributes, "other code's")
	_, err = verbs.NewRequester(a.QP, verbs.RequesterConfig{Linger: -2})
	require.ErrorIs(t, err, verbs.ErrAttributes)
}

// Where packets get lost, Soft-RoCE may complete an atomic without its result: the
// acknowledgement of a WRITE before it that was sent again covers it. READs are
// left out of that acknowledgement (ack_psn of rxe_resp.c): they have their data.
func TestReadsBehindLostWrites(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: 4 * time.Millisecond, Retries: 7})
	if lab.In() { // so that the acknowledgement of a WRITE gets lost with the reply to the READ behind it
		lab.ImpairWire(t, lab.Impairment{Burst: lab.Burst{Begin: 0.05, End: 0.3}})
	}
	r, far := newRequester(t, a, verbs.RequesterConfig{}), b.MR.Region()
	const places, size = 32, 64
	for i := range places {
		(&stamped{b: b.MR.Bytes()[i*size : (i+1)*size]}).put(uint64(i + 1))
	}
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	buf := &stamped{b: a.MR.Bytes()[:size]}
	for n := range rounds {
		place := n % places
		buf.put(0)
		write, err := r.Start(t.Context(), verbs.WriteWR(far.At(65536), a.MR.SGE(65536, size)))
		require.NoError(t, err)
		err = r.Read(t.Context(), far.At(uint64(place*size)), a.MR.SGE(0, size))
		require.NoError(t, errors.Join(err, write.Wait(t.Context())))
		require.True(t, buf.is(uint64(place+1)), "READ %d answered %x", n, buf.b[:8])
	}
}
