package lockoffload

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Those who say nothing make room for those who come after them, the first one first.
func TestDoor(t *testing.T) {
	var d door
	var near, far []net.Conn
	for range mostAtTheDoor + 2 {
		a, b := net.Pipe()
		near, far = append(near, a), append(far, b)
	}
	defer func() {
		for _, c := range near {
			c.Close()
		}
	}()
	open := func(i int) bool { // to write into a pipe that nobody reads would block
		errs := make(chan error, 1)
		go func() { _, err := far[i].Write([]byte{1}); errs <- err }()
		_, _ = near[i].Read(make([]byte, 1))
		return <-errs == nil
	}
	require.True(t, d.enter(near[0]))
	require.True(t, d.enter(near[1]))
	d.leave(near[0]) // it said who it is
	for _, c := range near[2:] {
		require.True(t, d.enter(c))
	}
	require.True(t, open(0), "who has left is not closed")
	require.False(t, open(1), "who came first is")
	require.True(t, open(2))
	require.Len(t, d.here, mostAtTheDoor)
	d.leave(near[1])
	require.Len(t, d.here, mostAtTheDoor)
	d.shut()
	require.False(t, open(2))
	a, b := net.Pipe()
	require.False(t, d.enter(a))
	_, err := b.Read(make([]byte, 1))
	require.Error(t, err)
}

// Connections are kept alive below TLS, too.
func TestOverTCP(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer lis.Close()
	conn, err := net.Dial("tcp", lis.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	for _, c := range []net.Conn{conn, tls.Client(conn, &tls.Config{})} {
		tcp, ok := overTCP(c)
		require.True(t, ok)
		require.Equal(t, conn, tcp)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	_, ok := overTCP(a)
	require.False(t, ok)
}
