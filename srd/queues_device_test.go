//go:build linux

package srd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// Queues share an endpoint, and those of one service a context; a queue that is closed
// gives its messages up, and the others go on.
func TestQueues(t *testing.T) {
	a, b := pair(t, srd.Config{})
	ordered, err := a.NewQueue(srd.QueueConfig{Service: srd.Ordered, Depth: 8})
	require.NoError(t, err)
	other, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	stop := collect(t, b, true)
	require.Equal(t, 50, stream(t, ordered, b.Addr(), 50, 8, 64)[srd.Delivered])
	require.Len(t, stop(), 50)
	var rs []srd.Request
	for i := range 10 {
		rs = append(rs, srd.Request{ID: uint64(i), Destination: a.Destination(b.Addr(), srd.Ordered), Data: [][]byte{pattern(i, 64)}})
	}
	n, err := ordered.Post(rs...)
	require.ErrorIs(t, err, srd.ErrQueueFull)
	require.Equal(t, 8, n)
	_, err = other.Post(rs...)
	require.NoError(t, err)
	require.NoError(t, ordered.Close())
	_, err = ordered.Post(rs...)
	require.ErrorIs(t, err, verbs.ErrClosed)
	got := 0
	for got < 10 {
		var cs [4]srd.Completion
		n, err := other.Wait(ctxOf(t), cs[:])
		require.NoError(t, err)
		for _, c := range cs[:n] {
			require.Equal(t, srd.Delivered, c.Status)
		}
		got += n
	}
	_, err = other.Post(srd.Request{Destination: b.Destination(a.Addr(), srd.Ordered)})
	require.ErrorIs(t, err, verbs.ErrAttributes)
}
