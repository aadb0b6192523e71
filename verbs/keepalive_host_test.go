//go:build linux && cgo

package verbs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// keptSide is a queue pair of the stand-in with a keep-alive, in a queue that can be waited on.
func keptSide(t *testing.T, every time.Duration) (*CQ, *QP) {
	t.Helper()
	d, p, _, _ := driverRig(t)
	cfg := QPConfig{Extended: true, GID: standinGID, MaxSendWR: 8, KeepAlive: every}
	c, err := d.createCQFor(cfg)
	require.NoError(t, err)
	cfg.SendCQ = c
	q, err := p.CreateQP(cfg)
	require.NoError(t, err)
	require.NotNil(t, q.keep)
	standin.SetState(q.Num(), uint32(StateRTS))
	require.NoError(t, q.Connect(Endpoint{Type: RC, QPN: 0x99, PSN: 1, GID: standinPeer, MTU: MTU4096}, ConnectConfig{}))
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return c, q
}

// A queue pair that is in error ends, though no completion says why.
func TestKeepAliveOfAFlushedQueue(t *testing.T) {
	_, q := keptSide(t, time.Hour)
	q.keepAliveTick()
	require.True(t, q.keep.flying.Load())
	standin.SetState(q.Num(), uint32(StateError))
	standin.Complete(q.Num(), keepAliveID, uint32(WCFlushed))
	q.keepAliveTick()
	require.NoError(t, q.Err(), "the program may poll what says why")
	q.keepAliveTick()
	require.ErrorIs(t, q.Err(), ErrUnreachable)
}

// One request is sent in KeepAlive, although its completion is looked for sooner.
func TestKeepAliveIsSentOnceInATime(t *testing.T) {
	_, q := keptSide(t, time.Hour)
	sent := func() int { return strings.Count(standin.Recorded(), "write id=0x6b656570616c6976") }
	for range 3 {
		q.keepAliveTick() // an hour is over
		require.Equal(t, 1, sent())
		q.keepAliveTick() // not completed
		standin.Complete(q.Num(), keepAliveID, uint32(WCSuccess))
		q.keepAliveTick()
		require.Zero(t, sent())
	}
}

// A tick that was under way when the queue pair was connected anew does nothing to that.
func TestKeepAliveOfAnEarlierConnection(t *testing.T) {
	_, q := keptSide(t, time.Hour)
	old := q.keep.timer
	q.keepAlive()
	require.True(t, q.keepAliveGoesOn(old, true, false))
	require.True(t, q.keepAliveGoesOn(old, false, true))
	require.NotNil(t, q.keep.timer)
	require.False(t, q.keep.failed)
}

// A call that waits takes the completion of a keep-alive of which no event has told it: without that there
// would be no other keep-alive.
func TestKeepAliveBesideAWait(t *testing.T) {
	c, q := keptSide(t, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() {
		_, err := c.Wait(ctx, make([]WC, 1))
		waits <- err
	}()
	require.Eventually(t, func() bool { return len(c.wait.waiter) > 0 }, time.Minute, time.Millisecond)
	for range 2 {
		require.Eventually(t, q.keep.flying.Load, time.Minute, time.Millisecond)
		standin.Complete(q.Num(), keepAliveID, uint32(WCSuccess)) // and raises no event
		require.Eventually(t, func() bool { return strings.Contains(standin.Recorded(), "write id=0x6b656570616c6976") }, time.Minute, time.Millisecond)
	}
	cancel()
	require.ErrorIs(t, <-waits, context.Canceled)
}
