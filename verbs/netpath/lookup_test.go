package netpath_test

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/netpath"
)

func TestOtherSystems(t *testing.T) {
	if runtime.GOOS == "linux" {
		t.Skip("this is Linux")
	}
	_, err := netpath.Resolve(t.Context(), netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = netpath.LookupNetdev(t.Context(), "lo")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// On every Linux lo is up, and never RDMA's.
func TestLoopback(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	_, err := netpath.LookupNetdev(t.Context(), "lo")
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
	_, err = netpath.LookupAddr(t.Context(), netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
	require.ErrorContains(t, err, "netpath: look up 127.0.0.1: netdev without an RDMA device (lo; netdevs with one: ")
	for _, none := range []netip.Addr{{}, netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		_, err = netpath.LookupAddr(t.Context(), none)
		require.ErrorIs(t, err, netpath.ErrNoAddress)
		require.ErrorContains(t, err, "(name one; there are: ")
	}
	unzoned := netip.MustParseAddr("fe80::1")
	_, err = netpath.LookupAddr(t.Context(), unzoned)
	require.ErrorIs(t, err, netpath.ErrNoAddress)
	require.ErrorContains(t, err, "look up fe80::1: no such address on this host (name its netdev, as in fe80::1%eth0)")
	_, err = netpath.Resolve(t.Context(), unzoned)
	require.ErrorIs(t, err, netpath.ErrNoRoute)
	require.ErrorContains(t, err, "name its netdev, as in fe80::1%eth0")
	_, err = netpath.ResolveFrom(t.Context(), unzoned, netip.MustParseAddr("fe80::2%lo"))
	require.ErrorIs(t, err, netpath.ErrNoAddress)
	_, err = netpath.LookupAddr(t.Context(), netip.MustParseAddr("127.0.0.1"))
	var op *netpath.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "look up", op.Op)
	_, err = netpath.LookupNetdev(t.Context(), "no/such")
	require.ErrorIs(t, err, netpath.ErrNoNetdev)
	_, err = netpath.Resolve(t.Context(), netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = netpath.LookupNetdev(done, "lo")
	require.ErrorIs(t, err, context.Canceled)

	list, err := netpath.Netdevs(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, list)
	require.Equal(t, "lo", list[0].Name)
	require.Empty(t, list[0].Device)
	require.True(t, list[0].Loopback)
	plain, err := netpath.Interfaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, list[0], plain[0])
	mtu, err := netpath.InterfaceMTU(list[0].Index)
	require.NoError(t, err)
	require.Equal(t, list[0].MTU, mtu)
	_, err = netpath.InterfaceMTU(1 << 30)
	require.ErrorIs(t, err, netpath.ErrNoNetdev)
	_, err = list[0].FindGID(t.Context(), netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
}
