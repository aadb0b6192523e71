package server

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stranger is a connection that says nothing, and knows whether it was closed.
type stranger struct {
	net.Conn
	closed bool
}

func (s *stranger) Close() error {
	s.closed = true
	return nil
}

// Who has been at the door for long goes when others come, the oldest first, and nobody else:
// others are let wait.
func TestDoor(t *testing.T) {
	d := &door{left: make(chan struct{}, 1)}
	begin := time.Now()
	var all [maxGreeting]stranger
	for i := range all {
		require.Zero(t, d.enter(&all[i], begin.Add(time.Duration(i)*time.Millisecond)))
	}
	var next, after stranger
	require.Equal(t, patience-100*time.Millisecond, d.enter(&next, begin.Add(100*time.Millisecond)))
	require.False(t, all[0].closed)
	require.Zero(t, d.enter(&next, begin.Add(patience)))
	require.True(t, all[0].closed)
	require.False(t, all[1].closed)
	require.Len(t, d.greeting, maxGreeting)
	require.Equal(t, time.Millisecond, d.enter(&after, begin.Add(patience)))
	d.leave(&all[7])
	require.Len(t, d.left, 1, "who waits is told")
	require.Zero(t, d.enter(&after, begin.Add(patience)))
	require.Len(t, d.greeting, maxGreeting)
	require.False(t, all[1].closed)
	require.False(t, all[7].closed)
	d.leave(&all[0]) // it is not there any more
	require.Len(t, d.greeting, maxGreeting)
}
