package operr

import (
	"io"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestZoneless(t *testing.T) {
	require.Equal(t, "name its netdev, as in fe80::1%eth0", Zoneless(netip.MustParseAddr("fe80::1")))
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%lo"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("169.254.0.1")} {
		require.Empty(t, Zoneless(a), a)
	}
	require.EqualError(t, Dial("[fe80::1]:7", io.EOF), "EOF (name its netdev, as in fe80::1%eth0)")
	require.ErrorIs(t, Dial("[fe80::1]:7", io.EOF), io.EOF)
	for _, address := range []string{"10.0.0.1:7", "host:7", "fe80::1", ""} {
		require.Equal(t, io.EOF, Dial(address, io.EOF), address)
	}
	require.NoError(t, Dial("[fe80::1]:7", nil))
}
