//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// ender counts what it is told.
type ender struct {
	times atomic.Int32
	err   error
	say   error
}

func (e *ender) Ended(err error) error {
	e.err = err
	e.times.Add(1)
	return errors.Join(err, e.say)
}

func TestRequesterGo(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 8}, cc, verbs.ConnectConfig{})
		r, ctx, far := newRequester(t, a, verbs.RequesterConfig{}), t.Context(), b.MR.Region()
		// More than there is room for, and no goroutine waits before the last is posted.
		calls, enders := make([]verbs.Call, 100), make([]ender, 100)
		for i := range calls {
			calls[i].Then = &enders[i]
			require.NoError(t, r.Go(ctx, &calls[i], verbs.WR{Op: verbs.WRFetchAdd, Remote: far.At(512), Value: 1, Local: []verbs.SGE{a.MR.SGE(8*i, 8)}}))
		}
		for i := range calls {
			require.NoError(t, calls[i].Wait(ctx))
			require.NoError(t, calls[i].Wait(ctx), "again")
			require.True(t, calls[i].Done())
			require.EqualValues(t, 1, enders[i].times.Load())
			require.NoError(t, enders[i].err)
			require.EqualValues(t, i, verbs.Uint64(a.MR.Bytes(), 8*i))
		}
		c := &calls[0] // once more, while the others' slots stay taken
		var left []verbs.Pending
		for range a.QP.MaxSendWR() - 1 {
			p, err := r.Start(ctx, verbs.ReadWR(far.At(0), a.MR.SGE(2048, 8)))
			require.NoError(t, err)
			left = append(left, p)
		}
		for i := range 20 {
			require.NoError(t, c.Wait(ctx))
			require.NoError(t, r.Go(ctx, c, verbs.WR{Op: verbs.WRFetchAdd, Remote: far.At(512), Value: 1, Local: []verbs.SGE{a.MR.SGE(0, 8)}}))
			require.NoError(t, r.Go(ctx, &calls[1+i], verbs.WriteWR(far.At(0), a.MR.SGE(2048, 8))), "nobody waits for the only slot")
		}
		require.NoError(t, c.Wait(ctx))
		require.EqualValues(t, 119, verbs.Uint64(a.MR.Bytes(), 0))
		for _, p := range left {
			require.NoError(t, p.Wait(ctx))
		}
	})
}

func TestRequesterGoRefusals(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 8}, verbs.CQConfig{}, verbs.ConnectConfig{})
	r, ctx, far := newRequester(t, a, verbs.RequesterConfig{}), t.Context(), b.MR.Region()
	var c verbs.Call
	e := &ender{}
	c.Then = e
	require.ErrorIs(t, r.Go(ctx, &c), verbs.ErrAttributes)
	require.NoError(t, r.Go(ctx, &c, verbs.SendWR(a.MR.SGE(0, 8)))) // no receive
	require.ErrorIs(t, r.Go(ctx, &c, verbs.ReadWR(far.At(0), a.MR.SGE(0, 8))), verbs.ErrState, "it is under way")
	require.Zero(t, e.times.Load())
	b.Recv(t, 1, 64)
	require.NoError(t, c.Wait(ctx))
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Go(ctx, &c, verbs.ReadWR(far.At(0), a.MR.SGE(0, 8))), verbs.ErrClosed)
	require.EqualValues(t, 1, e.times.Load())
}

// A context ends the wait and not the list; several goroutines wait for its end later.
func TestRequesterGoOutlivesContexts(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, patient)
		r := newRequester(t, a, verbs.RequesterConfig{Linger: time.Millisecond})
		var c verbs.Call
		e := &ender{}
		c.Then = e
		require.NoError(t, r.Go(t.Context(), &c, verbs.SendWR(a.MR.SGE(0, 8))))
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			require.Equal(t, context.DeadlineExceeded, c.Wait(ctx))
			cancel()
			require.False(t, c.Done())
		}
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, a.QP.Err(), "nothing lingers")
		require.Zero(t, e.times.Load())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { assert.NoError(t, c.Wait(t.Context())) })
		}
		b.Recv(t, 1, 64)
		wg.Wait()
		require.True(t, c.Done())
		require.EqualValues(t, 1, e.times.Load())
	})
}

// Calls that no goroutine waits for end with the requester, or with the queue pair.
func TestRequesterEndsAbandonedCalls(t *testing.T) {
	own := errors.New("the program's reason")
	for name, end := range map[string]struct {
		by   func(a *rig.Side, r *verbs.Requester) error
		want error
	}{
		"closed":           {func(_ *rig.Side, r *verbs.Requester) error { return r.Close() }, verbs.ErrClosed},
		"moved to ERROR":   {func(a *rig.Side, _ *verbs.Requester) error { return a.QP.ToError() }, verbs.WCFlushed},
		"moved to RESET":   {func(a *rig.Side, _ *verbs.Requester) error { return a.QP.ToReset() }, verbs.WCFlushed},
		"nobody says why":  {func(a *rig.Side, _ *verbs.Requester) error { return verbs.ErrorUntold(a.QP) }, verbs.WCFlushed},
		"by Ended's error": {nil, own},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 8}, verbs.CQConfig{}, patient)
			r := newRequester(t, a, verbs.RequesterConfig{})
			calls, enders := make([]verbs.Call, 8), make([]ender, 8)
			for i := range calls {
				calls[i].Then = &enders[i]
			}
			if end.by == nil {
				enders[0].say = own
				require.NoError(t, r.Go(t.Context(), &calls[0], verbs.ReadWR(b.MR.Region().At(0), a.MR.SGE(0, 8))))
				require.Equal(t, own.Error(), calls[0].Wait(t.Context()).Error())
				require.ErrorIs(t, a.QP.Err(), own)
				require.ErrorIs(t, r.Write(t.Context(), b.MR.Region().At(0), a.MR.SGE(0, 8)), own)
				return
			}
			for i := range calls {
				require.NoError(t, r.Go(t.Context(), &calls[i], verbs.SendWR(a.MR.SGE(0, 8))))
			}
			require.NoError(t, end.by(a, r))
			for i := range calls {
				if name != "closed" { // else all of them are over
					require.ErrorIs(t, calls[i].Wait(t.Context()), end.want)
				}
				require.True(t, calls[i].Done())
				require.EqualValues(t, 1, enders[i].times.Load())
				require.ErrorIs(t, enders[i].err, end.want)
			}
			require.NoError(t, r.Close())
			for i := range calls {
				require.EqualValues(t, 1, enders[i].times.Load())
			}
		})
	}
}

// Goroutines that give up waiting and wait again, for their own calls and for
// others', on two requesters of one completion queue: what was told of as done was
// done, once, also when the connection is cut.
func TestRequesterGoForMany(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		for _, cut := range []bool{false, true} {
			callsOfMany(t, cc, cut)
		}
	})
}

func callsOfMany(t *testing.T, cc verbs.CQConfig, cut bool) {
	const goroutines = 8
	seed, ops := testseed.New(t), 200
	if testing.Short() {
		ops = 40
	}
	a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 6}, cc, verbs.ConnectConfig{AckTimeout: 4 * time.Second})
	r, far := newRequester(t, a, verbs.RequesterConfig{}), b.MR.Region()
	var added, posted atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			var c verbs.Call
			e := &ender{}
			c.Then = e
			for n := range ops {
				if cut && g == 0 && n == ops/2 {
					assert.NoError(t, a.QP.ToError())
				}
				err := r.Go(t.Context(), &c, verbs.WriteWR(far.At(uint64(8*g)), a.MR.SGE(8*g, 8)),
					verbs.WR{Op: verbs.WRFetchAdd, Remote: far.At(4096), Value: 1, Local: []verbs.SGE{a.MR.SGE(1024+8*g, 8)}})
				if err != nil {
					if !cut {
						t.Error(err)
					}
					return
				}
				posted.Add(1)
				var others sync.WaitGroup
				for range rng.IntN(3) {
					others.Go(func() { _ = c.Wait(t.Context()) })
				}
				for !c.Done() && rng.IntN(3) > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(300))*time.Microsecond)
					_ = c.Wait(ctx)
					cancel()
				}
				err = c.Wait(t.Context())
				others.Wait()
				if int(e.times.Load()) != n+1 || !errors.Is(err, e.err) {
					t.Errorf("told %d times, the last time %v, Wait %v", e.times.Load(), e.err, err)
				}
				switch {
				case err == nil:
					added.Add(1)
				case !cut || !errors.Is(err, verbs.WCFlushed):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	have := int64(verbs.Uint64(b.MR.Bytes(), 4096))
	require.LessOrEqual(t, added.Load(), have)
	require.LessOrEqual(t, have, posted.Load())
	if !cut {
		require.EqualValues(t, goroutines*ops, have)
	}
}

func TestRequesterGoDoesNotAllocate(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
		r, far := newRequester(t, a, verbs.RequesterConfig{}), b.MR.Region()
		var calls [3]verbs.Call
		var e ender
		calls[0].Then = &e
		contexts := []context.Context{context.Background(), t.Context()}
		n := 0
		require.Zero(t, testing.AllocsPerRun(200, func() {
			n++
			for i := range calls {
				if err := r.Go(contexts[n/100%2], &calls[i],
					verbs.WriteWR(far.At(64), a.MR.SGE(0, 64)), verbs.ReadWR(far.At(0), a.MR.SGE(256*i, 64))); err != nil {
					t.Error(err)
				}
			}
			for i := range calls {
				if err := calls[i].Wait(contexts[n/100%2]); err != nil {
					t.Error(err)
				}
			}
		}))
	})
}
