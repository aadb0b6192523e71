//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// A client has its queue pair until it closes, or has another one.
func TestQueuePairIsTheClients(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	qp, cq, _, in := r.admit()
	_, other := r.a.qp(t)
	_, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: other, Session: in})
	require.ErrorIs(t, err, lockoffload.ErrConfig, "its sends complete elsewhere")
	c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
	require.NoError(t, err)
	_, err = lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
	require.ErrorIs(t, err, verbs.ErrInUse)
	require.ErrorIs(t, qp.Close(), verbs.ErrInUse)
	update := func(c *lockoffload.Client) error {
		_, err := updateAsync(ctx, c, 0, func([]byte) ([]byte, error) { return []byte("x"), nil })
		return err
	}
	require.NoError(t, update(c), "as if nothing had happened")

	next, nextCQ, _, in2 := r.admit()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, c.Reconnect(ended, next, nextCQ, in2), context.Canceled)
	require.ErrorIs(t, c.Reconnect(ctx, next, cq, in2), lockoffload.ErrConfig)
	require.ErrorIs(t, c.Reconnect(ctx, nil, cq, in2), lockoffload.ErrConfig)
	require.NoError(t, update(c), "with the queue pair that it has")
	require.ErrorIs(t, qp.Close(), verbs.ErrInUse)
	require.NoError(t, c.Reconnect(ctx, next, nextCQ, in2))
	require.NoError(t, qp.Close())
	require.ErrorIs(t, next.Close(), verbs.ErrInUse)
	require.NoError(t, update(c))
	require.NoError(t, c.Close())
	require.NoError(t, next.Close())
	require.ErrorIs(t, c.Reconnect(ctx, qp, cq, in), verbs.ErrClosed)
}

// Clients whose queue pairs have one completion queue poll for each other, and one
// that is cut takes nothing from the other.
func TestClientsShareACompletionQueue(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	cq, err := r.a.dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	r.a.made.add(cq)
	const clients, goroutines, each = 3, 2, 15
	var cs []*lockoffload.Client
	var last *verbs.QP
	for range clients + 1 {
		last, err = r.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid})
		require.NoError(t, err)
		r.a.made.add(last)
		_, in := r.connect(last)
		c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: last, CQ: cq, Session: in})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		cs = append(cs, c)
	}
	var wg sync.WaitGroup
	for _, c := range cs[:clients] {
		for range goroutines {
			wg.Go(func() {
				for range each {
					if _, err := updateAsync(ctx, c, 0, func(old []byte) ([]byte, error) {
						return binary.LittleEndian.AppendUint64(nil, number(old)+1), nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	require.NoError(t, last.ToError())
	_, _, err = cs[clients].Read(ctx, 0, make([]byte, 8))
	require.ErrorIs(t, err, lockoffload.ErrBroken)
	wg.Wait()
	for _, c := range cs[:clients] {
		require.NoError(t, c.Flush(ctx))
	}
	data, _, err := cs[0].Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.EqualValues(t, clients*goroutines*each, number(data))
}

// A list that cannot be posted ends the session, its queue pair included: the target
// is not to believe in a client that takes no orders.
func TestListThatCannotBePosted(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	qp, cq, _, in := r.admit()
	c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
	require.NoError(t, err)
	err = c.PostTooMuch()
	require.ErrorIs(t, err, lockoffload.ErrBroken)
	require.ErrorIs(t, err, verbs.ErrBatchFull)
	<-c.Lost()
	require.Error(t, qp.Err())
	_, _, err = c.Read(ctx, 0, make([]byte, 8))
	require.ErrorIs(t, err, lockoffload.ErrBroken)
	require.NoError(t, c.Close())
}
