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

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// patient is for SENDs that stay under way because there is no receive: Soft-RoCE of
// 6.1 gives those up as if the peer did not respond.
var patient = verbs.ConnectConfig{AckTimeout: 4 * time.Second}

// eachContext runs f with a context that ends and with one that never does: they are
// waited under in different ways.
func eachContext(t *testing.T, f func(t *testing.T, ctx context.Context)) {
	t.Run("ends", func(t *testing.T) { f(t, t.Context()) })
	t.Run("never ends", func(t *testing.T) { f(t, context.Background()) })
}

// A call that was flushed before the cause is known is over a moment later, when
// nothing more completes that could wake its waiter.
func TestFlushedCallEndsItsWait(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		eachContext(t, func(t *testing.T, ctx context.Context) {
			a, _ := rig.NewPair(t, verbs.QPConfig{}, cc, patient)
			r := newRequester(t, a, verbs.RequesterConfig{})
			var c verbs.Call
			e := &ender{}
			c.Then = e
			require.NoError(t, r.Go(ctx, &c, verbs.SendWR(a.MR.SGE(0, 8)))) // no receive
			var waiting sync.WaitGroup
			for range 3 {
				waiting.Go(func() {
					if err := c.Wait(ctx); !errors.Is(err, verbs.WCFlushed) {
						t.Error(err)
					}
				})
			}
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, verbs.ErrorUntold(a.QP))
			inTime(t, 5*time.Second, "Wait", waiting.Wait)
			require.EqualValues(t, 1, e.times.Load())
			require.ErrorIs(t, e.err, verbs.WCFlushed)
		})
	})
}

// All slots are taken: by lists that are over and were not waited for yet, and
// by a call under way without a waiter. Whatever gives a slot back has the next
// post go on, and what ends the post does so at once.
func TestRequesterGoWithoutASlot(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(t *testing.T, a, b *rig.Side, r *verbs.Requester, left []verbs.Pending)
		want error
	}{
		"the call ends": {func(t *testing.T, _, b *rig.Side, _ *verbs.Requester, _ []verbs.Pending) { b.Recv(t, 1, 64) }, nil},
		"one waits": {func(t *testing.T, _, _ *rig.Side, _ *verbs.Requester, left []verbs.Pending) {
			require.NoError(t, left[0].Wait(t.Context()))
		}, nil},
		"closed": {func(t *testing.T, _, _ *rig.Side, r *verbs.Requester, _ []verbs.Pending) {
			require.NoError(t, r.Close())
		}, verbs.ErrClosed},
		"moved to ERROR": {func(t *testing.T, a, _ *rig.Side, _ *verbs.Requester, _ []verbs.Pending) {
			require.NoError(t, a.QP.ToError())
		}, verbs.WCFlushed},
		"moved to RESET": {func(t *testing.T, a, _ *rig.Side, _ *verbs.Requester, _ []verbs.Pending) {
			require.NoError(t, a.QP.ToReset())
		}, verbs.ErrState},
		"nobody says why": {func(t *testing.T, a, _ *rig.Side, _ *verbs.Requester, _ []verbs.Pending) {
			require.NoError(t, verbs.ErrorUntold(a.QP))
		}, verbs.WCFlushed},
	} {
		t.Run(name, func(t *testing.T) {
			eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
				eachContext(t, func(t *testing.T, ctx context.Context) {
					a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 4}, cc, patient)
					r, far := newRequester(t, a, verbs.RequesterConfig{}), b.MR.Region()
					write := verbs.WriteWR(far.At(0), a.MR.SGE(64, 8))
					var left []verbs.Pending
					for range a.QP.MaxSendWR() - 1 {
						p, err := r.Start(ctx, write)
						require.NoError(t, err)
						left = append(left, p)
					}
					require.NoError(t, r.Write(ctx, far.At(0), a.MR.SGE(64, 8)), "so all of them are over")
					var stays, next verbs.Call
					require.NoError(t, r.Go(ctx, &stays, verbs.SendWR(a.MR.SGE(0, 8)))) // no receive
					hasty, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
					defer cancel()
					require.ErrorIs(t, r.Go(hasty, &next, write), context.DeadlineExceeded)
					posted := make(chan error, 1)
					go func() { posted <- r.Go(ctx, &next, write) }()
					require.Eventually(t, func() bool { return verbs.Starved(r) }, rig.Timeout, 50*time.Microsecond)
					time.Sleep(30 * time.Millisecond)
					require.Empty(t, posted)
					end.by(t, a, b, r, left)
					select {
					case err := <-posted:
						switch {
						case end.want != nil && err == nil: // the slot was there just before the end
							err = next.Wait(ctx)
							if !errors.Is(err, verbs.WCFlushed) {
								require.ErrorIs(t, err, end.want)
							}
						case end.want != nil:
							require.ErrorIs(t, err, end.want)
						default:
							require.NoError(t, err)
							if name != "the call ends" {
								b.Recv(t, 1, 64)
							}
							require.NoError(t, next.Wait(ctx))
						}
					case <-time.After(time.Minute):
						t.Error("Go hangs")
					}
					inTime(t, 5*time.Second, "Close", func() { require.NoError(t, r.Close()) })
					require.True(t, stays.Done())
				})
			})
		})
	}
}

// Calls, lists that are waited for and single requests of many goroutines, on a queue
// pair that is cut and connected again and again, and in the end closed under them:
// each call that was posted is told of once, each wait ends, and what succeeded was
// executed.
func TestCallsOnAQueuePairThatComesAndGoes(t *testing.T) {
	seed, rounds := testseed.New(t), 60
	if testing.Short() {
		rounds = 15
	}
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		eachContext(t, func(t *testing.T, ctx context.Context) {
			a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 6}, cc, verbs.ConnectConfig{})
			r, far := newRequester(t, a, verbs.RequesterConfig{}), b.MR.Region()
			var added, posted atomic.Int64
			var done atomic.Bool
			var wg sync.WaitGroup
			for g := range 6 {
				rng := rand.New(rand.NewPCG(seed, uint64(g)))
				wg.Go(func() {
					w := comesAndGoes{t: t, ctx: ctx, r: r, a: a, far: far, place: 64 * g, rng: rng}
					for !done.Load() {
						w.step(&added, &posted)
					}
				})
			}
			rng := rand.New(rand.NewPCG(seed, 99))
			for range rounds {
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
				switch rng.IntN(3) {
				case 0:
					require.NoError(t, a.QP.ToError())
				case 1:
					_ = verbs.ErrorUntold(a.QP)
				}
				if !inTime(t, 10*time.Second, "ToReset", func() { require.NoError(t, a.QP.ToReset()) }) {
					return
				}
				require.NoError(t, b.Reset())
				require.NoError(t, errors.Join(a.QP.Init(), b.QP.Init()))
				require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
				_ = a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{}) // a silent end may come in between
			}
			time.Sleep(2 * time.Millisecond)
			inTime(t, 10*time.Second, "Close", func() { require.NoError(t, r.Close()) })
			done.Store(true)
			if inTime(t, 10*time.Second, "calls", wg.Wait) {
				have := int64(verbs.Uint64(b.MR.Bytes(), 4096))
				t.Logf("%d posted, %d executed, %d told so", posted.Load(), have, added.Load())
				require.LessOrEqual(t, added.Load(), have)
				require.LessOrEqual(t, have, posted.Load())
				have32, capacity := verbs.Credits(r)
				require.Equal(t, capacity, have32)
			}
		})
	})
}

type comesAndGoes struct {
	t     *testing.T
	ctx   context.Context
	r     *verbs.Requester
	a     *rig.Side
	far   verbs.Region
	place int
	rng   *rand.Rand

	c     verbs.Call
	e     ender
	times int32
}

func (w *comesAndGoes) step(added, posted *atomic.Int64) {
	add := []verbs.WR{
		verbs.WriteWR(w.far.At(uint64(w.place)), w.a.MR.SGE(w.place, 8)),
		{Op: verbs.WRFetchAdd, Remote: w.far.At(4096), Value: 1, Local: []verbs.SGE{w.a.MR.SGE(w.place+8, 8)}},
	}
	count := func(err error) {
		posted.Add(1)
		if err == nil {
			added.Add(1)
		}
	}
	switch w.rng.IntN(4) {
	case 0:
		if p, err := w.r.Start(w.ctx, add...); err == nil {
			count(p.Wait(w.ctx))
		}
	case 1:
		posted.Add(1) // perhaps
		if _, err := w.r.FetchAdd(w.ctx, w.far.At(4096), 1); err == nil {
			added.Add(1)
		}
	default:
		w.c.Then = &w.e
		if w.r.Go(w.ctx, &w.c, add...) != nil {
			break
		}
		w.times++
		var others sync.WaitGroup
		for range w.rng.IntN(3) {
			others.Go(func() { _ = w.c.Wait(w.ctx) })
		}
		for w.rng.IntN(2) > 0 && !w.c.Done() {
			hasty, cancel := context.WithTimeout(w.ctx, time.Duration(w.rng.IntN(200))*time.Microsecond)
			_ = w.c.Wait(hasty)
			cancel()
		}
		err := w.c.Wait(w.ctx)
		others.Wait()
		if n := w.e.times.Load(); n != w.times || fmt.Sprint(err) != fmt.Sprint(w.e.err) {
			w.t.Errorf("told %d times of %d, the last time %v, Wait %v", n, w.times, w.e.err, err)
		}
		count(err)
	}
}

// Goroutines wait under contexts of their own, which end while nothing completes, and
// under some that come again: each end ends the wait under it, at once, and
// ends no other wait.
func TestContextsEndTheirOwnWaits(t *testing.T) {
	seed, rounds := testseed.New(t), 300
	if testing.Short() {
		rounds = 60
	}
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, patient)
	r := newRequester(t, a, verbs.RequesterConfig{})
	var c verbs.Call
	require.NoError(t, r.Go(t.Context(), &c, verbs.SendWR(a.MR.SGE(0, 8)))) // no receive
	var hasty, others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			if err := c.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for g := range 4 {
		rng := rand.New(rand.NewPCG(seed, uint64(g)))
		hasty.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(rng.IntN(500))*time.Microsecond, cancel)
				for range 1 + rng.IntN(2) { // the second time it has ended
					if err := c.Wait(ctx); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			}
		})
	}
	if inTime(t, 20*time.Second, "a wait under a context that ended", hasty.Wait) {
		require.False(t, c.Done())
		b.Recv(t, 1, 64)
		inTime(t, 5*time.Second, "the wait", others.Wait)
	}
}
