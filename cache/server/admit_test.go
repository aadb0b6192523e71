package server

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

// So many clients share a completion queue, and the others, whoever they are, have their own; a
// client that leaves makes room. Those by TCP need none.
func TestSharedQueueHasRoom(t *testing.T) {
	s := bare(&net.TCPAddr{}, Config{})
	lets := func(by greet.Transport, from *queue) net.Conn {
		t.Helper()
		let := make(chan bool, 1)
		go func() { let <- s.admit(&stranger{}, by, nil) }()
		select {
		case c := <-from.conns:
			require.True(t, <-let)
			return c
		case <-time.After(patient):
			require.Fail(t, "it went elsewhere")
			return nil
		}
	}
	var all []net.Conn
	for range sharedClients {
		all = append(all, lets(greet.RDMA, s.links))
	}
	alone := lets(greet.RDMA, s.alone)
	lets(greet.TCP, s.streams)
	require.NoError(t, alone.Close())
	lets(greet.RDMA, s.alone)
	require.NoError(t, all[7].Close())
	require.NoError(t, all[7].Close())
	lets(greet.RDMA, s.links)
	lets(greet.RDMA, s.alone)
	require.NoError(t, s.Close())
	require.False(t, s.admit(&stranger{}, greet.RDMA, nil), "it is closed")
}
