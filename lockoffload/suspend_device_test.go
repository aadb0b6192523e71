//go:build linux

package lockoffload_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
)

// A client whose host was suspended for longer than its lease has lost its locks.
func TestSuspendedHolder(t *testing.T) {
	requireWire(t)
	ctx := within(t, stuck)
	var suspended atomic.Int64
	t.Cleanup(lockoffload.SetClock(func(at time.Time) time.Time { return at.Add(time.Duration(suspended.Load())) })) // right behind the clients' ends
	r := newRig(t, lockoffload.Layout{Slots: 2, Size: 8}, long)
	c, _ := r.client(lockoffload.Retry{})
	var held []*lockoffload.Lock
	for slot := range 2 {
		h, _, err := c.Lock(ctx, slot, lockoffload.LockOptions{})
		require.NoError(t, err)
		_, err = h.Write(ctx, 0, []byte("before"))
		require.NoError(t, err)
		held = append(held, h)
	}
	suspended.Store(int64(long))
	err := held[1].Unlock(ctx)
	require.ErrorIs(t, err, lockoffload.ErrLost)
	require.NotErrorIs(t, err, lockoffload.ErrOutcomeUnknown, "nothing is written")
	require.Zero(t, r.reg.Versions(1))
	h := held[0]
	_, err = h.Write(ctx, 0, []byte("behind"))
	require.ErrorIs(t, err, lockoffload.ErrLost)
	<-h.Lost()
	require.ErrorIs(t, h.Unlock(ctx), lockoffload.ErrLost)
}

// A READ in the middle of which the host was suspended may have seen what a recovery takes
// away.
func TestSuspendedRead(t *testing.T) {
	requireWire(t)
	ctx := within(t, stuck)
	var looks atomic.Int64
	t.Cleanup(lockoffload.SetClock(func(at time.Time) time.Time { return at.Add(time.Duration(looks.Add(1)) * time.Second / 5) }))
	c, _ := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long).client(lockoffload.Retry{})
	_, res, err := c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, lockoffload.ProtocolReadLocked, res.Protocol)
}

// The lease is looked at when a change is posted: one whose host was suspended while it was made is
// not, and the lock is given back.
func TestSuspendedUpdate(t *testing.T) {
	requireWire(t)
	ctx := within(t, stuck)
	var suspended atomic.Int64
	t.Cleanup(lockoffload.SetClock(func(at time.Time) time.Time { return at.Add(time.Duration(suspended.Load())) }))
	r := newRig(t, lockoffload.Layout{Slots: 2, Size: 8}, long)
	c, _ := r.client(lockoffload.Retry{})
	add := func([]byte) ([]byte, error) { return []byte("one"), nil }
	for range 2 {
		_, err := c.Update(ctx, 0, add)
		require.NoError(t, err)
	}
	_, err := c.Update(ctx, 1, func(old []byte) ([]byte, error) {
		suspended.Store(int64(long))
		return add(old)
	})
	require.ErrorIs(t, err, lockoffload.ErrLost)
	require.NotErrorIs(t, err, lockoffload.ErrOutcomeUnknown, "nothing is written")
	require.Zero(t, r.reg.Versions(1))
	require.EqualValues(t, 2, c.Stats().TwoStep)
	<-c.Lost()
}

// So it is when a holder's changes are posted: they may have waited for room in the queue.
func TestSuspendedBeforePost(t *testing.T) {
	requireWire(t)
	for name, end := range map[string]func(*lockoffload.Lock, context.Context) error{"commit": (*lockoffload.Lock).Commit, "unlock": (*lockoffload.Lock).Unlock} {
		t.Run(name, func(t *testing.T) {
			ctx := within(t, stuck)
			var suspended, passes atomic.Int64
			t.Cleanup(lockoffload.SetClock(func(at time.Time) time.Time { return at.Add(time.Duration(suspended.Load())) }))
			t.Cleanup(lockoffload.BeforePosts(func() { suspended.Add(passes.Load()) }))
			r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
			c, _ := r.client(lockoffload.Retry{})
			h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
			require.NoError(t, err)
			_, err = h.Write(ctx, 0, []byte("before"))
			require.NoError(t, err)
			passes.Store(int64(long))
			err = end(h, ctx)
			require.ErrorIs(t, err, lockoffload.ErrLost)
			require.NotErrorIs(t, err, lockoffload.ErrOutcomeUnknown, "nothing is written")
			require.Zero(t, r.reg.Versions(0))
			<-h.Lost()
			require.ErrorIs(t, h.Unlock(ctx), lockoffload.ErrLost)
		})
	}
}

// A change whose context has ended is posted in the background. If the lease is over by then, the
// change is not made, and the goroutine that learns so shares nothing with the call that returned.
func TestSuspendedInTheBackground(t *testing.T) {
	requireWire(t)
	ctx := within(t, stuck)
	var suspended, passes atomic.Int64
	t.Cleanup(lockoffload.SetClock(func(at time.Time) time.Time { return at.Add(time.Duration(suspended.Load())) }))
	t.Cleanup(lockoffload.BeforePosts(func() { suspended.Add(passes.Load()) }))
	const times = 20 // which of the two is first differs
	r := newRig(t, lockoffload.Layout{Slots: times, Size: 8}, long)
	for slot := range times {
		suspended.Store(0)
		passes.Store(0)
		c, _ := r.client(lockoffload.Retry{})
		brief, cancel := context.WithCancel(ctx)
		res, err := c.Update(brief, slot, func([]byte) ([]byte, error) {
			cancel()
			passes.Store(int64(long))
			return []byte("never"), nil
		})
		require.Error(t, err)
		<-c.Lost()
		if res.Commit != nil {
			err = res.Commit.Wait(ctx)
		}
		require.ErrorIs(t, err, lockoffload.ErrLost)
		require.NotErrorIs(t, err, lockoffload.ErrOutcomeUnknown, "nothing is written")
		require.Zero(t, r.reg.Versions(slot))
	}
}
