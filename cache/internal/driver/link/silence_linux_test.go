package link

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Both kinds of streams find that a host is gone.
func TestSilentHostsAreFound(t *testing.T) {
	one, other := tcp(t)
	NewStream(t.Context(), one, 0)
	NewPartingStream(t.Context(), other, 0)
	for _, c := range []net.Conn{one, other} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			require.NoError(t, err)
			require.EqualValues(t, Silence.Milliseconds(), ms)
		}))
	}
}
