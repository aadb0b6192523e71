package link

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/testconn"
)

// Both kinds of streams find that a host is gone while nothing is under way.
func TestQuietStreamsAreProbed(t *testing.T) {
	one, other := testconn.TCP(t)
	NewStream(t.Context(), one, 0)
	NewPartingStream(t.Context(), other, 0)
	for _, c := range []net.Conn{one, other} {
		for option, want := range map[int]int{unix.TCP_KEEPINTVL: 2, unix.TCP_KEEPCNT: 5, unix.TCP_USER_TIMEOUT: 0} {
			require.True(t, control(c, func(fd int) {
				n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, option)
				require.NoError(t, err)
				require.Equal(t, want, n, option)
			}))
		}
	}
	on, err := 0, error(nil)
	require.True(t, control(one, func(fd int) { on, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE) }))
	require.NoError(t, err)
	require.Equal(t, 1, on, "Go's default")
}
