//go:build linux

package link

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// A side says of itself where it can be reached: by the GID of the address that it has, and, where the device has
// none of that, since it is another network's or all networks', by one that the device has.
func TestGIDOfAnAddress(t *testing.T) {
	ends := lab.Require(t, 2)
	d, err := verbs.Open(ends[1].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	gid, err := FindGID(d, ends[1].Addr)
	require.NoError(t, err)
	require.Equal(t, ends[1].Addr, gid.GID.Addr())
	all, err := d.GIDs()
	require.NoError(t, err)
	require.Greater(t, len(all), 1, "there is something to choose")
	for _, other := range []netip.Addr{
		ends[0].Addr, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("2001:db8::1"), netip.IPv4Unspecified(), netip.IPv6Unspecified(),
	} {
		gid, err := FindGID(d, other)
		require.NoError(t, err, other)
		require.Contains(t, all, gid, other)
		require.Equal(t, verbs.GIDRoCEv2, gid.Type, other)
	}
	require.NoError(t, d.Close())
	_, err = FindGID(d, ends[1].Addr)
	require.ErrorIs(t, err, verbs.ErrClosed)
}
