//go:build linux && cgo

package verbs

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// The queue holds eight requests: a list waits until all of it fits, its context's
// end at most, and what it waited for is the device's completion, not the slots alone.
func TestListsWaitForRoom(t *testing.T) {
	eachHostCQ(t, func(t *testing.T, cc CQConfig) {
		_, _, _, q := hostSide(t, cc)
		r, err := NewRequester(q, RequesterConfig{})
		require.NoError(t, err)
		writes := func(n int) []WR { return slices.Repeat([]WR{WriteWR(wordAt, wordSGE)}, n) }
		var first, second, third Call
		require.NoError(t, r.Go(t.Context(), &first, writes(5)...))
		require.NoError(t, r.Go(t.Context(), &second, writes(3)...))
		require.Zero(t, r.credits.Load())
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		require.ErrorIs(t, r.Go(short, &third, writes(1)...), context.DeadlineExceeded)
		cancel()
		ids := r.underWay()
		var wg sync.WaitGroup
		wg.Go(func() { require.NoError(t, r.Go(t.Context(), &third, writes(6)...)) })
		time.Sleep(10 * time.Millisecond)
		standin.Complete(q.Num(), ids[0], uint32(WCSuccess))
		r.router.cq.wake()
		require.Eventually(t, first.Done, time.Minute, time.Millisecond)
		require.False(t, second.Done())
		time.Sleep(5 * time.Millisecond)
		require.True(t, third.Done(), "not posted: five are free, of six")
		require.EqualValues(t, 5, r.credits.Load())
		standin.Complete(q.Num(), ids[1], uint32(WCSuccess))
		r.router.cq.wake()
		within(t, 5*time.Second, "Go", wg.Wait)
		require.EqualValues(t, 2, r.credits.Load())
		standin.Complete(q.Num(), r.underWay()[0], uint32(WCSuccess))
		require.NoError(t, third.Wait(t.Context()))
		require.EqualValues(t, 8, r.credits.Load())
		require.NoError(t, r.Close())
	})
}

func eachHostCQ(t *testing.T, f func(t *testing.T, cc CQConfig)) {
	t.Run("events", func(t *testing.T) { f(t, CQConfig{}) })
	t.Run("polled", func(t *testing.T) { f(t, CQConfig{PollOnly: true}) })
}

// All slots have results that their owners have not taken yet: a call that needs one waits for
// them, also with the poll lock, and ends with Close.
func TestListsWaitForSlots(t *testing.T) {
	_, _, _, q := hostSide(t, CQConfig{})
	r, err := NewRequester(q, RequesterConfig{})
	require.NoError(t, err)
	var ps []Pending
	for range 8 {
		p, err := r.Start(t.Context(), WriteWR(wordAt, wordSGE))
		require.NoError(t, err)
		ps = append(ps, p)
	}
	for _, id := range r.underWay() {
		standin.Complete(q.Num(), id, uint32(WCSuccess))
	}
	write := WriteWR(wordAt, wordSGE)
	r.unwaited.Add(-1) // a call is about to take its result
	var wg sync.WaitGroup
	var call Call
	wg.Go(func() { require.NoError(t, r.Go(t.Context(), &call, write)) })
	for !r.starved.Load() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond)
	require.True(t, call.Done(), "not posted")
	r.unwaited.Add(1)
	require.NoError(t, ps[0].Wait(t.Context()))
	within(t, 5*time.Second, "Go", wg.Wait)
	require.False(t, r.starved.Load())
	require.ErrorIs(t, ps[0].Wait(t.Context()), ErrState)
	standin.Complete(q.Num(), r.underWay()[0], uint32(WCSuccess))
	require.NoError(t, call.Wait(t.Context()))

	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	p, err := r.Start(t.Context(), write)
	require.NoError(t, err)
	require.ErrorIs(t, r.Go(short, &call, write), context.DeadlineExceeded)
	standin.Complete(q.Num(), r.underWay()[0], uint32(WCSuccess))
	for _, p := range append(ps[1:], p) {
		require.NoError(t, p.Wait(t.Context()))
	}
	require.NoError(t, r.Close())
}

// A call that gets the poll lock and finds room releases it.
func TestTurnsOfRoom(t *testing.T) {
	_, _, _, q := hostSide(t, CQConfig{PollOnly: true})
	r, err := NewRequester(q, RequesterConfig{})
	require.NoError(t, err)
	rt := r.router
	free := r.free
	for name, c := range map[string]struct{ none, some func() }{
		"slots": {
			func() { r.mu.Lock(); r.free = nil; r.mu.Unlock() },
			func() { r.mu.Lock(); r.free = free; r.mu.Unlock() },
		},
		"requests": {func() { r.credits.Store(0) }, func() { r.credits.Store(r.capacity) }},
	} {
		t.Run(name, func(t *testing.T) {
			c.none()
			require.True(t, rt.pollLock.Try())
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := r.room(t.Context(), opRead, 1)
				require.NoError(t, err)
			})
			time.Sleep(20 * time.Millisecond)
			c.some()
			rt.pollLock.Release()
			within(t, 5*time.Second, "room", wg.Wait)
			require.True(t, rt.pollLock.Try(), "the poll lock was kept")
			rt.pollLock.Release()
			r.free = free
		})
	}
	require.NoError(t, r.Close())
}
