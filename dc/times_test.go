//go:build linux && cgo

package dc

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/dc/internal/wire"
)

// silentIO is the driver of a target that sends no reply.
type silentIO struct{}

func (silentIO) Attach(int, uint64, *wire.Message) (uint32, error) { return 1, nil }
func (silentIO) Release(int, uint64, bool)                         {}
func (silentIO) Prepare()                                          {}
func (silentIO) Repair(int)                                        {}
func (silentIO) Moved(int) bool                                    { return false }
func (silentIO) Send(wire.ControlAddress, *wire.Message)           {}

// TestTimesWithoutEnd: the longest time that there is means no bound, and not that all
// is over at once.
func TestTimesWithoutEnd(t *testing.T) {
	const endless = time.Duration(math.MaxInt64)
	const now = time.Hour

	ic := InitiatorConfig{Hold: endless, MaxWait: endless, ConnectTimeout: endless, Retransmit: endless, AckTimeout: endless}
	ic.defaults()
	i := session.NewInitiator(1, 1, session.Limits{Quota: ic.Quota, Hold: ic.Hold, MaxWait: ic.MaxWait, Retransmit: ic.Retransmit, ConnectTimeout: ic.ConnectTimeout},
		func() uint32 { return 1 })
	for n := range uint32(2) {
		i.Enqueue(i.AddPeer(session.PeerAddress{At: wire.ControlAddress{QPN: n}}), 1, now)
	}
	require.Greater(t, i.Next(), now+24*time.Hour)
	for at, n := now, 0; at < session.Never && n < 100; at, n = i.Next(), n+1 {
		i.Tick(at)
		for _, a := range i.Actions {
			if a.Kind == session.ActFail {
				require.Greater(t, at, now+24*time.Hour)
			}
		}
		i.Actions = nil
	}

	tc := TargetConfig{Lease: endless, Recall: endless, Retry: endless}
	tc.defaults()
	require.LessOrEqual(t, tc.Lease/time.Millisecond, time.Duration(math.MaxUint32), "messages have so much room for it")
	target := session.NewTarget(1, 0, 1, session.TargetLimits{Lease: tc.Lease, Retry: tc.Retry, Recall: tc.Recall, PacketsCount: true}, silentIO{}, func() uint64 { return 1023 })
	target.Received(&wire.Message{Kind: wire.Connect, Sender: 1}, now)
	require.Greater(t, target.Next(), now+24*time.Hour)
	target.Received(&wire.Message{Kind: wire.Connect, Sender: 2}, now) // has the session recalled
	target.Tick(now + time.Hour)
	require.Equal(t, 1, target.Counted().Live)

	in, h, p := newHeld(t, InitiatorConfig{})
	close(h.halting)
	h.ring = newRing(1)
	h.ring.tail++ // no room
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- in.Do(ctx, p, Request{Timeout: endless}) }()
	require.Eventually(t, func() bool { return p.Stats().Queued == 1 }, time.Minute, time.Millisecond)
	short, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	require.ErrorContains(t, in.Do(short, p, Request{Timeout: time.Millisecond}), "waited for its target")
	require.Equal(t, 1, p.Stats().Queued, "the other one waits on")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, in.Close())
}

// TestTimesOneByOne: each of several requests that wait ends in its own time.
func TestTimesOneByOne(t *testing.T) {
	i, h, p := newHeld(t, InitiatorConfig{})
	close(h.halting)
	h.ring = newRing(1)
	h.ring.tail++ // no room
	for n := range 3 {
		_, err := i.Post(p, Request{ID: uint64(n), Timeout: time.Duration(2+30*n) * time.Millisecond})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := range 3 {
		var cs [1]Completion
		_, err := i.Wait(ctx, cs[:])
		require.NoError(t, err)
		require.EqualValues(t, n, cs[0].ID)
		require.ErrorIs(t, cs[0].Err, ErrTimeout)
	}
	require.NoError(t, i.Close())
}
