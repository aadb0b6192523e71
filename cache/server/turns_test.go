package server

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

func quietly() error { return nil }

// So many have their turn at a time, in the order in which they came. A turn that is ended twice makes
// room once.
func TestTurns(t *testing.T) {
	q := &turns{most: 2}
	var all []*turn
	for range 6 {
		all = append(all, q.ask())
	}
	begun := func() (which []int) {
		for i, t := range all {
			select {
			case <-t.begun:
				which = append(which, i)
			default:
			}
		}
		return which
	}
	require.Equal(t, []int{0, 1}, begun())
	all[1].over()
	all[1].over()
	require.Equal(t, []int{0, 1, 2}, begun())
	all[3].over() // it gives up before it begins
	require.Equal(t, []int{0, 1, 2}, begun())
	all[0].over()
	all[2].over()
	require.Equal(t, []int{0, 1, 2, 4, 5}, begun())
	all[4].over()
	all[5].over()
	require.Zero(t, q.given)
	require.Empty(t, q.waiting)
	(*turn)(nil).over()
	require.GreaterOrEqual(t, newTurns().most, 4)
}

// A waiting client is told so each second, and gives up with its context, or when it cannot be told.
func TestWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &turns{most: 1}
		first, err := q.take(t.Context(), quietly)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		told := 0
		_, err = q.take(ctx, func() error { told++; return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2, told)
		gone := errors.New("it has gone")
		_, err = q.take(t.Context(), func() error { return gone })
		require.ErrorIs(t, err, gone)
		require.Empty(t, q.waiting)
		first.over()
	})
}

// A turn that does not end keeps others waiting for no longer than its time.
func TestLongTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &turns{most: 1}
		begin := time.Now()
		_, err := q.take(t.Context(), quietly)
		require.NoError(t, err)
		next, err := q.take(t.Context(), quietly)
		require.NoError(t, err)
		require.Equal(t, longTurn, time.Since(begin))
		next.over()
		time.Sleep(2 * longTurn)
		require.Zero(t, q.given)
	})
}

// A turn ends when its client's connection closes, or when it is not let in.
func TestTurnsEnd(t *testing.T) {
	s := bare(&net.TCPAddr{}, Config{MaxClients: 3})
	q := &turns{most: 10}
	conn, far := net.Pipe()
	defer far.Close()
	let := func() net.Conn {
		var c net.Conn
		in := make(chan struct{})
		go func() { defer close(in); c = <-s.links.conns }()
		require.True(t, s.admit(conn, greet.RDMA, greet.Seal{}, q.ask()))
		<-in
		return c
	}
	a, b, c := let(), let(), let()
	require.Equal(t, 3, q.given)
	require.NoError(t, a.Close())
	require.Equal(t, 2, q.given)
	require.NoError(t, a.Close())
	require.Equal(t, 2, q.given)
	b.(*admitted).connects.over() // it has connected
	require.Equal(t, 1, q.given)
	require.NoError(t, b.Close())
	require.Equal(t, 1, q.given)
	require.NoError(t, c.Close())
	require.Zero(t, q.given)
	require.NoError(t, s.Close())
	d := q.ask()
	require.False(t, s.admit(conn, greet.RDMA, greet.Seal{}, d), "it is closed")
	d.over()
	require.Zero(t, q.given)
}
