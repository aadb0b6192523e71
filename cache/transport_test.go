package cache

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// When a session by TCP has ended there is no attempt by RDMA that operations have to wait for:
// one to a server that does not answer would take ten seconds.
func TestNoAttemptByRDMAAfterTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := newClient(l.Addr().String(), Config{})
	require.NoError(t, err)
	tcp := &session{c: c, by: TCP}
	tcp.live, tcp.stop = context.WithCancel(c.ctx)
	tcp.stop()
	require.Nil(t, c.better(tcp))
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody has come")
}
