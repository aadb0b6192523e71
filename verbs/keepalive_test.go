//go:build linux

package verbs_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// A queue pair notices that its peer has gone, whatever polls its completions, and the
// program sees nothing of how.
func TestKeepAlive(t *testing.T) {
	quick := verbs.ConnectConfig{AckTimeout: 100 * time.Millisecond, Retries: 3} // a busy host is that late
	for name, use := range map[string]func(t *testing.T, a, b *rig.Side){
		"nothing": func(*testing.T, *rig.Side, *rig.Side) {},
		"a wait": func(t *testing.T, a, _ *rig.Side) {
			ctx, cancel := context.WithCancel(rig.Context(t))
			var wcs [4]verbs.WC
			var n int
			var waits sync.WaitGroup
			waits.Go(func() { n, _ = a.CQ.Wait(ctx, wcs[:]) })
			t.Cleanup(func() {
				cancel()
				waits.Wait()
				require.Zero(t, n, "%v", wcs)
			})
		},
		"a requester": func(t *testing.T, a, b *rig.Side) {
			r, err := verbs.NewRequester(a.QP, verbs.RequesterConfig{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			require.NoError(t, r.Write(rig.Context(t), b.MR.Region().At(0), a.MR.SGE(0, 8)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := rig.NewPair(t, verbs.QPConfig{KeepAlive: 20 * time.Millisecond}, verbs.CQConfig{}, quick)
			use(t, a, b)
			select {
			case <-a.QP.Done():
				require.NoError(t, a.QP.Err(), "while the peer is there")
			case <-time.After(300 * time.Millisecond):
			}
			require.NoError(t, b.Reset())
			select {
			case <-a.QP.Done():
			case <-rig.Context(t).Done():
				require.Fail(t, "the peer is gone, and that is not noticed")
			}
			require.ErrorIs(t, a.QP.Err(), verbs.ErrUnreachable)
			require.ErrorIs(t, b.QP.Err(), nil)
		})
	}
}

// What the program does not poll stays where it was, and in its order.
func TestKeepAliveKeepsCompletions(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{KeepAlive: 5 * time.Millisecond, MaxSendWR: 64}, verbs.CQConfig{Depth: 64}, verbs.ConnectConfig{})
	batch := a.Batch(t, 1)
	var next, polled uint64
	var wcs [7]verbs.WC
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) || polled < next; {
		for next < polled+40 && time.Now().Before(end) {
			batch.Write(next, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
			_, err := batch.Post()
			require.NoError(t, err)
			next++
			if next%16 == 0 {
				time.Sleep(15 * time.Millisecond) // nothing polls
			}
		}
		var n int
		var err error
		if next%3 == 0 {
			n, err = a.CQ.Poll(wcs[:])
		} else {
			n, err = a.CQ.Wait(rig.Context(t), wcs[:])
		}
		require.NoError(t, err)
		for i := range wcs[:n] {
			require.NoError(t, wcs[i].Err())
			require.Equal(t, polled, wcs[i].ID())
			polled++
		}
	}
}
