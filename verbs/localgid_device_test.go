//go:build linux

package verbs_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// Beside a TCP connection a program takes the GID of its address, and, where the device
// has none of that, since it is another network's or all networks', one that it has.
func TestGIDForAConnection(t *testing.T) {
	ends := lab.Require(t, 2)
	d, err := verbs.Open(ends[1].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	gid, err := d.GIDFor(&net.TCPAddr{IP: ends[1].Addr.AsSlice()})
	require.NoError(t, err)
	require.Equal(t, ends[1].Addr, gid.GID.Addr())
	all, err := d.GIDs()
	require.NoError(t, err)
	require.Greater(t, len(all), 1, "there is something to choose")
	for _, other := range []netip.Addr{
		ends[0].Addr, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("2001:db8::1"), netip.IPv4Unspecified(), netip.IPv6Unspecified(), {},
	} {
		gid, err := d.LocalGID(verbs.GIDQuery{Addr: other, Port: gid.Port})
		require.NoError(t, err, other)
		require.Contains(t, all, gid, other)
		require.Equal(t, verbs.GIDRoCEv2, gid.Type, other)
	}
	_, err = d.GIDFor(&net.UnixAddr{})
	require.NoError(t, err)
	_, err = d.LocalGID(verbs.GIDQuery{Addr: ends[1].Addr, Port: 9})
	require.ErrorIs(t, err, verbs.ErrNoGID)
	require.NoError(t, d.Close())
	_, err = d.GIDFor(&net.TCPAddr{IP: ends[1].Addr.AsSlice()})
	require.ErrorIs(t, err, verbs.ErrClosed)
}
