package server

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// So many clients share a completion queue, and others another one; a client that leaves makes room.
func TestSharedQueuesHaveRoom(t *testing.T) {
	made := 0
	q := queues{make: func() (*sharedQueue, error) { made++; return &sharedQueue{}, nil }}
	take := func() *sharedQueue {
		t.Helper()
		s, err := q.take()
		require.NoError(t, err)
		return s
	}
	first := take()
	for range sharedClients - 1 {
		require.Same(t, first, take())
	}
	require.Equal(t, 1, made)
	second := take()
	require.NotSame(t, first, second)
	require.Same(t, second, take())
	q.give(first)
	require.Same(t, first, take())
	require.Same(t, second, take())
	require.Equal(t, 2, made)

	// One that is broken takes no clients any more, and goes with the others.
	q.drop(first)
	q.give(first)
	third := take()
	require.NotSame(t, first, third)
	require.Same(t, second, third)
	require.Equal(t, []*sharedQueue{second}, q.all)
	require.Equal(t, []*sharedQueue{first}, q.broken)

	none := errors.New("none")
	q = queues{make: func() (*sharedQueue, error) { return nil, none }}
	_, err := q.take()
	require.ErrorIs(t, err, none)
	require.Empty(t, q.all)
}
