//go:build linux && cgo

package dc_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

func writesOf(ids ...uint64) (rs []dc.Request) {
	for _, id := range ids {
		rs = append(rs, writeOf(id))
	}
	return rs
}

// none polls, and requires that there is no completion.
func none(t *testing.T, i *dc.Initiator) {
	t.Helper()
	n, err := i.Poll(make([]dc.Completion, 1))
	require.NoError(t, err)
	require.Zero(t, n)
}

// The caller of Start waits for the last of several requests, and gets the first error; Poll returns
// none of them.
func TestStart(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 8})
	p := resolveDCT(t, i, 1, 0xa)
	w, err := i.Start(p, writesOf(1, 2, 3))
	require.NoError(t, err)
	complete(0, 0, verbs.WCSuccess)
	complete(0, 1, verbs.WCSuccess)
	none(t, i)
	require.Equal(t, 1, w.Left())
	complete(0, 2, verbs.WCSuccess)
	none(t, i)
	require.NoError(t, w.Wait(t.Context()))

	w, err = i.Start(p, writesOf(1, 2))
	require.NoError(t, err)
	complete(0, 3, verbs.WCRemoteAccess)
	complete(0, 4, verbs.WCFlushed)
	none(t, i)
	err = w.Wait(t.Context())
	require.ErrorIs(t, err, verbs.WCRemoteAccess)
	require.NotErrorIs(t, err, dc.ErrSession, "that of the first one")

	// None at all.
	w, err = i.Start(p, nil)
	require.NoError(t, err)
	require.NoError(t, w.Wait(t.Context()))
	require.NoError(t, i.Forget(p))
	_, err = i.Start(p, writesOf(1))
	require.ErrorIs(t, err, dc.ErrClosed)
}

// Only the last request of a call that is posted at once has a completion, unless one fails. The others are over with
// the next one that has.
func TestStartHasOneCompletion(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 16})
	p := resolveDCT(t, i, 1, 0xa)
	signaled := func() int { return strings.Count(standin.Recorded(), "flags=0x2") }
	w, err := i.Start(p, writesOf(1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, 1, signaled())
	complete(0, 2, verbs.WCSuccess)
	none(t, i)
	require.Zero(t, w.Left())
	require.NoError(t, w.Wait(t.Context()))

	w, err = i.Start(p, writesOf(4, 5, 6, 7))
	require.NoError(t, err)
	complete(0, 5, verbs.WCRemoteAccess)
	none(t, i)
	require.Equal(t, 1, w.Left())
	complete(0, 6, verbs.WCFlushed)
	none(t, i)
	require.Zero(t, w.Left())
	require.ErrorIs(t, w.Wait(t.Context()), verbs.WCRemoteAccess)
}

// A list that is longer than a quarter of the queue has more: the queue has room again before all of it is over.
func TestLongStartHasSomeCompletions(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 8})
	p := resolveDCT(t, i, 1, 0xa)
	w, err := i.Start(p, writesOf(1, 2, 3, 4, 5))
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(standin.Recorded(), "flags=0x2"))
	for n, id := range []uint64{1, 3, 4} {
		complete(0, id, verbs.WCSuccess)
		none(t, i)
		require.Equal(t, []int{3, 1, 0}[n], w.Left())
	}
	require.NoError(t, w.Wait(t.Context()))
}

// Requests of Post have a completion each, as soon as they are over.
func TestPostSignalsEach(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 8})
	p := resolveDCT(t, i, 1, 0xa)
	_, err := i.Post(p, writesOf(1, 2, 3)...)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(standin.Recorded(), "flags=0x2"))
	for k := range 3 {
		complete(0, uint64(k), verbs.WCSuccess)
	}
	require.Len(t, wait(t, i, 3), 3)
}

// Those for which there is no room are an error, and the others are waited for all the same. The end of a
// context takes back what waits.
func TestStartOfTooMany(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 1, MaxPending: 1})
	p := resolveDCT(t, i, 1, 0xa)
	w, err := i.Start(p, writesOf(1, 2, 3))
	require.NoError(t, err)
	_, err = i.Start(p, writesOf(4))
	require.ErrorIs(t, err, dc.ErrQueueFull)
	complete(0, 0, verbs.WCSuccess)
	none(t, i)
	complete(0, 1, verbs.WCSuccess)
	none(t, i)
	require.Zero(t, w.Left())
	require.ErrorIs(t, w.Wait(t.Context()), dc.ErrQueueFull)

	first, err := i.Start(p, writesOf(5))
	require.NoError(t, err)
	w, err = i.Start(p, writesOf(6))
	require.NoError(t, err)
	require.Equal(t, 1, p.Stats().Queued)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.Wait(ctx), context.Canceled)
	require.Zero(t, p.Stats().Queued)
	complete(0, 2, verbs.WCSuccess)
	none(t, i)
	require.NoError(t, first.Wait(ctx), "it succeeded, whatever became of the context")
}
