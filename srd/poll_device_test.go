//go:build linux

package srd_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// A goroutine that waits polls for PollFor, and parks then. While no message is under way and no goroutine of
// the program waits, the endpoint does not poll. Each poll is a crossing into C.
func TestPollFor(t *testing.T) {
	const pollFor = 100 * time.Millisecond
	_, err := srd.Open(srd.Config{PD: new(verbs.PD), PollFor: -1})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	es := ends(t)
	crossings := func(f func()) int64 {
		before := runtime.NumCgoCall()
		f()
		return runtime.NumCgoCall() - before
	}
	for _, cfg := range []srd.Config{{PollFor: pollFor}, {}} {
		a, b := open(t, es[0], cfg), open(t, es[1], cfg)
		ctx := ctxOf(t)
		require.NoError(t, a.Send(ctx, b.Addr(), []byte("ping")))
		var ms [1]srd.Message
		_, err := b.Receive(ctx, ms[:])
		require.NoError(t, err)
		b.Release(ms[:]...)
		time.Sleep(3 * pollFor) // what is under way comes, and a poll that had begun ends
		const few = 50
		require.Less(t, crossings(func() { time.Sleep(pollFor) }), int64(few), "idle")
		polls := crossings(func() {
			waiting, cancel := context.WithTimeout(ctx, 2*pollFor)
			defer cancel()
			_, err := b.Receive(waiting, ms[:])
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		if cfg.PollFor > 0 {
			require.Greater(t, polls, int64(few))
		} else {
			require.Less(t, polls, int64(few))
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}
