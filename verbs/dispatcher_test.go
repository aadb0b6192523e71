//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// readers is an engine with goroutines that READ words of the peer's memory, each with a
// slot of its own.
type readers struct {
	a, b *rig.Side
	d    *verbs.Dispatcher

	mu    sync.Mutex // posting, and what Completed takes
	batch *verbs.Batch
	slots []read
	wrong int // completions without an owner
	lost  chan error
	uses  uint64
}

type read struct {
	waiter verbs.Waiter
	flying bool
	use    uint64
	err    error
}

func newReaders(t *testing.T, d func(*readers) (*verbs.Dispatcher, error), a, b *rig.Side, slots int) *readers {
	e := &readers{a: a, b: b, slots: make([]read, slots), lost: make(chan error, 64)}
	var err error
	e.d, err = d(e)
	require.NoError(t, err)
	e.batch, err = e.d.NewBatch(a.QP, 4)
	require.NoError(t, err)
	return e
}

func (e *readers) Completed(tag uint64, wc *verbs.WC) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.completed(tag, wc)
}

func (e *readers) completed(tag uint64, wc *verbs.WC) {
	s := &e.slots[tag&0xff]
	if !s.flying || s.use != tag>>8 {
		e.wrong++
		return
	}
	s.flying, s.err = false, wc.Err()
	s.waiter.Wake()
}

func (e *readers) Lost(err error) {
	select {
	case e.lost <- err:
	default:
	}
}

// read has a slot READ a word from there into the slot's own place.
func (e *readers) read(ctx context.Context, i, from, spins int) error {
	s := &e.slots[i]
	e.mu.Lock()
	s.waiter.Reset()
	e.uses++
	s.use, s.flying = e.uses, true
	e.batch.Read(e.d.ID(s.use<<8|uint64(i)), verbs.Signaled, verbs.Remote{Addr: e.b.MR.Region().Addr + uint64(8*from), RKey: e.b.MR.Region().RKey}, e.a.MR.SGE(8*i, 8))
	_, found, err := e.d.PostPoll(e.batch, spins)
	own := e.uses%2 == 0 && driver.DispatchOwn(found, e.d, e.completed)
	e.mu.Unlock()
	if !own {
		found.Dispatch()
	}
	if err != nil {
		return err
	}
	if err := e.d.Wait(ctx, &s.waiter); err != nil {
		return err
	}
	return s.err
}

// Two engines and a requester share a queue: whichever polls, each completion comes to
// the request that it is of.
func TestDispatcher(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		const goroutines, rounds = 4, 40
		seed := testseed.New(t)
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
		rig.Fill(b.MR.Bytes()[:8*256], 7)
		make2 := func() *readers {
			p := rig.Ports(t)
			x := &rig.Side{Dev: a.Dev, PD: a.PD, CQ: a.CQ}
			var err error
			x.QP, err = a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, GID: p[0].GID})
			require.NoError(t, err)
			x.MR, err = a.PD.AllocMR(4096, verbs.MRConfig{})
			require.NoError(t, err)
			y := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
			t.Cleanup(func() { require.NoError(t, errors.Join(x.QP.Close(), x.MR.Close())) })
			require.NoError(t, x.QP.Connect(y.Endpoint(t), verbs.ConnectConfig{}))
			require.NoError(t, y.QP.Connect(x.Endpoint(t), verbs.ConnectConfig{}))
			rig.Fill(y.MR.Bytes()[:8*256], 7)
			return newReaders(t, func(e *readers) (*verbs.Dispatcher, error) { return a.CQ.Dispatch(e, goroutines) }, x, y, goroutines)
		}
		engines := []*readers{make2(), make2()}
		r := newRequester(t, a, verbs.RequesterConfig{})
		ctx := rig.Context(t)
		var wg sync.WaitGroup
		for _, e := range engines {
			for i := range goroutines {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					for range rounds {
						from, ctx := rng.IntN(256), ctx
						if i == 0 {
							ctx = context.Background() // which parks itself
						}
						if !assert.NoError(t, e.read(ctx, i, from, rng.IntN(3))) {
							return
						}
						assert.Equal(t, e.b.MR.Bytes()[8*from:8*from+8], e.a.MR.Bytes()[8*i:8*i+8])
					}
				})
			}
		}
		wg.Go(func() {
			for i := range rounds {
				assert.NoError(t, r.Read(ctx, b.MR.Region().At(uint64(8*i)), a.MR.SGE(0, 8)))
				assert.Equal(t, b.MR.Bytes()[8*i:8*i+8], a.MR.Bytes()[:8])
			}
		})
		wg.Wait()
		for _, e := range engines {
			require.Zero(t, e.wrong)
			require.NoError(t, e.d.Close())
			require.NoError(t, e.d.Close())
		}
	})
}

// What goes past a dispatcher, or is posted through another's, is refused.
func TestDispatcherRefuses(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	past := a.Batch(t, 1)
	pastRecv, err := a.QP.NewRecvBatch(1)
	require.NoError(t, err)
	e := newReaders(t, func(e *readers) (*verbs.Dispatcher, error) { return a.CQ.Dispatch(e, 4) }, a, b, 4)
	_, err = a.CQ.Poll(make([]verbs.WC, 1))
	require.ErrorIs(t, err, verbs.ErrInUse)
	past.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	_, err = past.Post()
	require.ErrorIs(t, err, verbs.ErrInUse)
	pastRecv.Recv(1, a.MR.SGE(0, 8))
	_, err = pastRecv.Post()
	require.ErrorIs(t, err, verbs.ErrInUse)
	past.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	_, found, err := e.d.PostPoll(past, 0)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	require.Zero(t, found.Dispatch())
	require.Equal(t, 1, past.Len(), "it stays as it is")
	past.Reset()
	_, found, err = e.d.PostPoll(nil, 0)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	require.Zero(t, found.Dispatch())
	_, err = e.d.NewBatch(b.QP, 1)
	require.ErrorIs(t, err, verbs.ErrAttributes, "it completes elsewhere")
	require.ErrorIs(t, a.CQ.Close(), verbs.ErrInUse)
	for _, depth := range []int{0, -1, 1 << 30} {
		_, err = a.CQ.Dispatch(e, depth)
		require.ErrorIs(t, err, verbs.ErrAttributes)
	}
	_, err = a.CQ.Dispatch(nil, 1)
	require.ErrorIs(t, err, verbs.ErrAttributes)

	// What it may: receives, too.
	recvs, err := e.d.NewRecvBatch(a.QP, 1)
	require.NoError(t, err)
	e.mu.Lock()
	e.uses++
	e.slots[3].use, e.slots[3].flying = e.uses, true
	recvs.Recv(e.d.ID(e.uses<<8|3), a.MR.SGE(64, 8))
	e.mu.Unlock()
	_, err = recvs.Post()
	require.NoError(t, err)
	send := b.Batch(t, 1)
	send.Send(1, verbs.Signaled, b.MR.SGE(0, 8))
	b.Do(t, send, 1)
	require.NoError(t, e.d.Wait(rig.Context(t), &e.slots[3].waiter))
	require.NoError(t, e.slots[3].err)

	require.NoError(t, e.d.Close())
	_, err = e.batch.Post() // empty
	require.NoError(t, err)
	e.batch.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	_, err = e.batch.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	past.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	a.Do(t, past, 1) // the queue is the program's again
}

// A wait ends by a context, by being woken from elsewhere, and at once if it was woken
// before, whichever waiter polls.
func TestDispatcherWaits(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
		e := newReaders(t, func(e *readers) (*verbs.Dispatcher, error) { return a.CQ.Dispatch(e, 4) }, a, b, 4)
		defer func() { require.NoError(t, e.d.Close()) }()
		const n = 6
		var waiters [n]verbs.Waiter
		var errs [n]error
		ended, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range waiters {
			ctx := t.Context()
			switch {
			case i == 0:
				ctx = context.Background()
			case i%2 == 1:
				ctx = ended
			}
			wg.Go(func() { errs[i] = e.d.Wait(ctx, &waiters[i]) })
		}
		time.Sleep(30 * time.Millisecond)
		require.NoError(t, e.read(rig.Context(t), 0, 3, 0), "beside them")
		cancel()
		for i := 0; i < n; i += 2 {
			e.d.Wake(&waiters[i])
		}
		inTime(t, 5*time.Second, "Wait", wg.Wait)
		for i, err := range errs {
			if i%2 == 1 {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
		}
		require.NoError(t, e.d.Wait(ended, &waiters[0]), "woken before")
		waiters[0].Reset()
		require.False(t, waiters[0].Woken())
		require.ErrorIs(t, e.d.Wait(ended, &waiters[0]), context.Canceled)
	})
}

// A queue pair fails, and its queue pair's end is known with the cause; it is
// connected anew, as often as one likes.
func TestDispatcherFailureAndNewLife(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	e := newReaders(t, func(e *readers) (*verbs.Dispatcher, error) { return a.CQ.Dispatch(e, 4) }, a, b, 4)
	defer func() { require.NoError(t, e.d.Close()) }()
	ctx := rig.Context(t)
	for range 3 {
		require.NoError(t, e.read(ctx, 0, 5, 0))
		err := e.read(ctx, 1, 1<<40, 0) // beyond the region
		var failed *verbs.WCError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, verbs.WCRemoteAccess, failed.Status)
		require.ErrorIs(t, a.QP.Err(), verbs.WCRemoteAccess)
		for _, s := range []*rig.Side{a, b} {
			require.NoError(t, s.Reset())
			require.NoError(t, s.QP.Init())
		}
		require.NoError(t, a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{}))
		require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
	}
	require.Zero(t, e.wrong)
}

// More requests than room was asked for: the queue overruns, and each goroutine that waits or
// polls learns of it, and the engine does.
func TestDispatcherBrokenQueue(t *testing.T) {
	for _, polled := range []bool{false, true} {
		t.Run(fmt.Sprint("polled ", polled), func(t *testing.T) {
			p := rig.Ports(t)
			a := rig.NewSide(t, p[0], verbs.QPConfig{MaxSendWR: 256}, verbs.CQConfig{Depth: 8, PollOnly: polled})
			b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
			require.NoError(t, a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{}))
			require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
			e := newReaders(t, func(e *readers) (*verbs.Dispatcher, error) { return a.CQ.Dispatch(e, 1) }, a, b, 4)
			defer func() { require.NoError(t, e.d.Close()) }()
			batch, err := e.d.NewBatch(a.QP, 64)
			require.NoError(t, err)
			for range 64 {
				batch.Write(e.d.ID(0), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
			}
			overrun := overruns(t, a)
			_, err = batch.Post()
			require.NoError(t, err)
			overrun()
			ctx, stop := context.WithTimeout(context.Background(), time.Minute)
			defer stop()
			require.ErrorIs(t, e.d.Wait(ctx, &e.slots[0].waiter), verbs.ErrOverrun)
			require.ErrorIs(t, <-e.lost, verbs.ErrOverrun)
			require.Eventually(t, func() bool { // it returns nothing while another goroutine polls
				_, err = e.d.Poll(0)
				return err != nil
			}, rig.Timeout, time.Millisecond)
			require.ErrorIs(t, err, verbs.ErrOverrun)
			require.ErrorIs(t, <-e.lost, verbs.ErrOverrun)
			batch.Write(e.d.ID(0), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
			_, found, _ := e.d.PostPoll(batch, 0)
			found.Dispatch()
		})
	}
}

// Engines come and go beside one that works.
func TestDispatchersComeAndGo(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	e := newReaders(t, func(e *readers) (*verbs.Dispatcher, error) { return a.CQ.Dispatch(e, 4) }, a, b, 4)
	ctx := rig.Context(t)
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for !done.Load() {
				if !assert.NoError(t, e.read(ctx, i, i, 0)) {
					return
				}
			}
		})
	}
	depth := 0
	for i := range 100 {
		other := &readers{}
		d, err := a.CQ.Dispatch(other, 64)
		require.NoError(t, err)
		_, err = d.Poll(0)
		require.NoError(t, err)
		require.NoError(t, d.Close())
		if i == 0 {
			depth = a.CQ.Depth()
		}
	}
	require.Equal(t, depth, a.CQ.Depth(), "it grew with engines that have gone")
	done.Store(true)
	wg.Wait()
	require.NoError(t, e.d.Close())
	require.Zero(t, e.wrong)
}

// Nothing is allocated on the way of a request.
func TestDispatcherAllocatesNothing(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	e := newReaders(t, func(e *readers) (*verbs.Dispatcher, error) { return a.CQ.Dispatch(e, 4) }, a, b, 4)
	defer func() { require.NoError(t, e.d.Close()) }()
	ctx := rig.Context(t)
	for range 2 {
		require.NoError(t, e.read(ctx, 0, 0, 0))
	}
	require.Zero(t, testing.AllocsPerRun(50, func() {
		if err := e.read(ctx, 0, 0, 0); err != nil {
			t.Error(err)
		}
	}))
}
