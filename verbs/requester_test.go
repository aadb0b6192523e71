//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/canceltest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

func newRequester(t testing.TB, s *rig.Side, cfg verbs.RequesterConfig) *verbs.Requester {
	t.Helper()
	r, err := verbs.NewRequester(s.QP, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// eachCQ runs a test with completions by events and by polling.
func eachCQ(t *testing.T, f func(t *testing.T, cc verbs.CQConfig)) {
	t.Run("events", func(t *testing.T) { f(t, verbs.CQConfig{}) })
	t.Run("polled", func(t *testing.T) { f(t, verbs.CQConfig{PollOnly: true}) })
}

func TestRequester(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		p := rig.Ports(t)
		a, b := rig.NewSide(t, p[0], verbs.QPConfig{}, cc), rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
		require.NoError(t, a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{}))
		require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
		r, ctx := newRequester(t, a, verbs.RequesterConfig{}), t.Context()
		b.Recv(t, 1, 64)
		far := b.MR.Region()

		copy(b.MR.Bytes()[4096:], "to be read")
		require.NoError(t, r.Read(ctx, far.At(4096), a.MR.SGE(0, 10)))
		require.Equal(t, "to be read", string(a.MR.Bytes()[:10]))
		copy(a.MR.Bytes(), "written!")
		require.NoError(t, r.Write(ctx, far.At(8192), a.MR.SGE(0, 8)))
		require.NoError(t, r.Read(ctx, far.At(8192), a.MR.SGE(64, 8)))
		require.Equal(t, "written!", string(a.MR.Bytes()[64:72]))
		old, err := r.FetchAdd(ctx, far.At(256), 5)
		require.NoError(t, err)
		require.Zero(t, old)
		old, err = r.CmpSwap(ctx, far.At(256), 5, 9)
		require.NoError(t, err)
		require.EqualValues(t, 5, old)
		old, err = r.CmpSwap(ctx, far.At(256), 5, 10)
		require.NoError(t, err)
		require.EqualValues(t, 9, old, "it stays")
		require.NoError(t, r.Send(ctx, a.MR.SGE(0, 8)))
		require.Equal(t, 8, b.Wait(t, 1)[0].Len())

		// A list in order, and lists that are started before any is over.
		require.NoError(t, r.Do(ctx, verbs.WriteWR(far.At(0), a.MR.SGE(0, 8)), verbs.ReadWR(far.At(0), a.MR.SGE(128, 8))))
		require.Equal(t, "written!", string(a.MR.Bytes()[128:136]))
		var started []verbs.Pending
		for i := range 100 {
			p, err := r.Start(ctx, verbs.WR{Op: verbs.WRFetchAdd, Remote: far.At(512), Value: 1, Local: []verbs.SGE{a.MR.SGE(1024+8*i, 8)}})
			require.NoError(t, err)
			started = append(started, p)
		}
		for i, p := range started {
			require.NoError(t, p.Wait(ctx))
			require.EqualValues(t, i, verbs.Uint64(a.MR.Bytes(), 1024+8*i))
		}
		require.ErrorIs(t, started[7].Wait(ctx), verbs.ErrState, "a second time")
		require.ErrorIs(t, verbs.Pending{}.Wait(ctx), verbs.ErrState)
	})
}

func TestRequesterRefusals(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 8}, verbs.CQConfig{}, verbs.ConnectConfig{})
	early := a.Batch(t, 1)
	r, err := verbs.NewRequester(a.QP, verbs.RequesterConfig{})
	require.NoError(t, err)
	ctx, far := t.Context(), b.MR.Region()

	_, err = verbs.NewRequester(a.QP, verbs.RequesterConfig{})
	require.ErrorIs(t, err, verbs.ErrInUse)
	require.ErrorIs(t, a.QP.Close(), verbs.ErrInUse)
	early.Read(1, verbs.Signaled, far.At(0), a.MR.SGE(0, 8))
	_, err = early.Post()
	require.ErrorIs(t, err, verbs.ErrInUse)
	var wcs [1]verbs.WC
	_, err = a.CQ.Poll(wcs[:])
	require.ErrorIs(t, err, verbs.ErrInUse)
	_, err = a.CQ.Wait(ctx, wcs[:])
	require.ErrorIs(t, err, verbs.ErrInUse)
	require.ErrorIs(t, a.QP.Drain(ctx, nil), verbs.ErrInUse)
	recv, err := a.QP.NewRecvBatch(1)
	require.NoError(t, err)
	recv.Recv(1, a.MR.SGE(0, 8))
	_, err = recv.Post()
	require.ErrorIs(t, err, verbs.ErrInUse, "its completion would be nobody's")

	require.ErrorIs(t, r.Read(ctx, far.At(0), a.MR.SGE(rig.BufSize, 8)), verbs.ErrRange)
	require.ErrorIs(t, r.Do(ctx), verbs.ErrAttributes)
	require.ErrorIs(t, r.Do(ctx, slices.Repeat([]verbs.WR{verbs.ReadWR(far.At(0), a.MR.SGE(0, 8))}, a.QP.MaxSendWR()+1)...), verbs.ErrBatchFull)
	_, err = r.FetchAdd(ctx, far.At(4), 1)
	require.ErrorIs(t, err, verbs.ErrRange)
	for range 20 { // room is not lost with requests that were refused
		require.NoError(t, r.Read(ctx, far.At(0), a.MR.SGE(0, 8)))
	}
	b.MR.Bytes()[0]++
	before := a.MR.Bytes()[0]
	canceltest.Methods(t, r, []any{far.At(0), a.MR.SGE(0, 8), &verbs.Call{}})
	require.Equal(t, before, a.MR.Bytes()[0], "nothing happened")
	require.NoError(t, r.Read(ctx, far.At(0), a.MR.SGE(0, 8)))

	var left []verbs.Pending
	for range a.QP.MaxSendWR() {
		p, err := r.Start(ctx, verbs.ReadWR(far.At(0), a.MR.SGE(0, 8)))
		require.NoError(t, err)
		left = append(left, p)
	}
	require.ErrorIs(t, r.Read(ctx, far.At(0), a.MR.SGE(0, 8)), verbs.ErrQueueFull, "all places are taken for good")
	for _, p := range left {
		require.NoError(t, p.Wait(ctx))
	}
	require.NoError(t, r.Read(ctx, far.At(0), a.MR.SGE(0, 8)))

	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Read(ctx, far.At(0), a.MR.SGE(0, 8)), verbs.ErrClosed)
	early.Read(1, verbs.Signaled, far.At(0), a.MR.SGE(0, 8))
	a.Do(t, early, 1)
	require.NoError(t, a.QP.Err())
}

// endsAfter is a context that ends between two questions.
type endsAfter struct {
	context.Context
	left atomic.Int32
	done chan struct{}
}

func (c *endsAfter) Done() <-chan struct{} { return c.done }

func (c *endsAfter) Err() error {
	if n := c.left.Add(-1); n > 0 {
		return nil
	} else if n == 0 {
		close(c.done)
	}
	return context.DeadlineExceeded
}

// Whenever a context ends, the queue pair has its time to be done with memory.
func TestRequesterContextEndsAnywhere(t *testing.T) {
	for _, linger := range []time.Duration{20 * time.Second, -1} {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{PollOnly: true}, verbs.ConnectConfig{})
		r, far := newRequester(t, a, verbs.RequesterConfig{Linger: linger}), b.MR.Region()
		var left []error
		for n := range int32(60) {
			ctx := &endsAfter{Context: context.Background(), done: make(chan struct{})}
			ctx.left.Store(n + 1)
			if err := r.Read(ctx, far.At(0), a.MR.SGE(0, rig.BufSize)); err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				left = append(left, err)
			}
			require.NoError(t, a.QP.Err(), "the context ended after %d questions", n)
		}
		for _, err := range left {
			if err = over(err); err != nil { // nothing was posted
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		require.NoError(t, a.QP.Err())
	}
}

// A flushed request may be seen before its cause is known: its error waits for
// it. If none becomes known, that is the cause, for the queue pair too.
func TestRequesterFlushedBeforeItsCause(t *testing.T) {
	for _, told := range []bool{true, false} {
		var a, b *rig.Side
		var r *verbs.Requester
		var far verbs.Region
		var err error
		inTime := false // it is waited for for a tenth of a second, in which a busy host may tell nothing
		for tries := 0; !inTime && tries < 20; tries++ {
			a, b = rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
			r, far = newRequester(t, a, verbs.RequesterConfig{}), b.MR.Region()
			require.NoError(t, verbs.ErrorUntold(a.QP))
			begin, after := time.Now(), make(chan time.Duration, 1)
			if told {
				time.AfterFunc(20*time.Millisecond, func() {
					assert.NoError(t, a.QP.ToError())
					after <- time.Since(begin)
				})
			} else {
				after <- 0
			}
			err = r.Read(t.Context(), far.At(0), a.MR.SGE(0, 8))
			inTime = <-after < 100*time.Millisecond
		}
		require.True(t, inTime)
		require.ErrorIs(t, err, verbs.WCFlushed)
		require.Error(t, a.QP.Err())
		require.ErrorContains(t, err, errors.Unwrap(a.QP.Err()).Error())
		if told {
			require.ErrorContains(t, err, "moved it to ERROR")
		} else {
			require.ErrorContains(t, err, "does not say why")
		}
		_, err = r.FetchAdd(t.Context(), far.At(0), 1)
		require.ErrorIs(t, err, verbs.WCFlushed)
		require.ErrorContains(t, err, errors.Unwrap(a.QP.Err()).Error())
	}
}

// A peer that is gone: the error has the operation, the peer and the reason, and
// that of the requests behind it has the same reason.
func TestRequesterOfDeadPeer(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: 30 * time.Millisecond, Retries: 6}) // the first WRITE may be acknowledged late
	r, far := newRequester(t, a, verbs.RequesterConfig{}), b.MR.Region()
	done := a.QP.Done()
	require.NoError(t, r.Write(t.Context(), far.At(0), a.MR.SGE(0, 8)))
	require.NoError(t, a.QP.Err())
	require.NoError(t, b.Reset())
	p, err := r.Start(t.Context(), verbs.WriteWR(far.At(0), a.MR.SGE(0, 8)))
	require.NoError(t, err)
	behind, err := r.Start(t.Context(), verbs.WriteWR(far.At(0), a.MR.SGE(0, 8)))
	require.NoError(t, err)
	err = p.Wait(t.Context())
	require.ErrorIs(t, err, verbs.WCRetryExceeded)
	require.ErrorContains(t, err, b.Endpoint(t).GID.Addr().String())
	err = behind.Wait(t.Context())
	require.ErrorIs(t, err, verbs.WCFlushed)
	require.ErrorIs(t, err, verbs.WCRetryExceeded)
	<-done
	require.ErrorIs(t, a.QP.Err(), verbs.WCRetryExceeded)
	err = r.Read(t.Context(), far.At(0), a.MR.SGE(0, 8))
	require.ErrorIs(t, err, verbs.WCRetryExceeded, "nothing is posted any more")
	t.Log(err)
}

// With nothing configured a dead peer is noticed within seconds.
func TestDeadPeerIsNoticed(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	r := newRequester(t, a, verbs.RequesterConfig{})
	require.NoError(t, b.Reset())
	begin := time.Now()
	require.ErrorIs(t, r.Read(t.Context(), b.MR.Region().At(0), a.MR.SGE(0, 8)), verbs.WCRetryExceeded)
	t.Logf("after %v", time.Since(begin))
	require.Less(t, time.Since(begin), 5*time.Second)
}

// A message for which the peer never posts a receive, with retries without end: the context
// ends the call, and after a while the queue pair.
func TestRequesterLingers(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
		r := newRequester(t, a, verbs.RequesterConfig{Linger: 300 * time.Millisecond})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { // another's, that has all the time
			err := r.Write(t.Context(), b.MR.Region().At(0), a.MR.SGE(64, 8))
			if err != nil && !errors.Is(err, verbs.WCFlushed) {
				t.Error(err)
			}
		})
		err := r.Send(ctx, a.MR.SGE(0, 8))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, verbs.WCFlushed)
		err = over(err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, verbs.WCFlushed)
		require.GreaterOrEqual(t, time.Since(begin), 400*time.Millisecond)
		wg.Wait()
		require.ErrorIs(t, a.QP.Err(), context.DeadlineExceeded)
	})
}

// underWay waits until something is.
func underWay(t *testing.T, r *verbs.Requester) {
	t.Helper()
	require.Eventually(t, func() bool { have, capacity := verbs.Credits(r); return have < capacity }, rig.Timeout, time.Millisecond)
}

// Close ends calls that wait.
func TestRequesterCloses(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 1}, verbs.CQConfig{}, verbs.ConnectConfig{})
	r := newRequester(t, a, verbs.RequesterConfig{})
	var wg sync.WaitGroup
	for range 3 { // one is under way, the others wait for room
		wg.Go(func() {
			if err := r.Send(t.Context(), a.MR.SGE(0, 8)); !errors.Is(err, verbs.ErrClosed) {
				t.Error(err)
			}
		})
	}
	underWay(t, r)
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, r.Close())
	wg.Wait()
	require.ErrorIs(t, a.QP.Err(), verbs.ErrClosed)
}

func TestRequesterDoesNotAllocate(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
		r, far := newRequester(t, a, verbs.RequesterConfig{}), b.MR.Region()
		background, cancellable := context.Background(), t.Context()
		n := 0
		require.Zero(t, testing.AllocsPerRun(100, func() {
			ctx := background
			if n++; n%2 == 0 {
				ctx = cancellable
			}
			err := r.Read(ctx, far.At(0), a.MR.SGE(0, 64))
			_, err2 := r.FetchAdd(ctx, far.At(0), 1)
			err3 := r.Do(ctx, verbs.WriteWR(far.At(64), a.MR.SGE(0, 64)), verbs.WriteWR(far.At(128), a.MR.SGE(0, 64)))
			if err := errors.Join(err, err2, err3); err != nil {
				t.Error(err)
			}
		}))
	})
}
