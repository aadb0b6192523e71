//go:build linux

package verbs_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

func TestLookupEndpoints(t *testing.T) {
	for _, e := range lab.Require(t, 1) {
		byAddr, err := verbs.LookupAddr(t.Context(), e.Addr)
		require.NoError(t, err)
		require.Equal(t, e.Device, byAddr.Device)
		require.Equal(t, e.Netdev, byAddr.Netdev)
		require.Equal(t, e.Netdev, byAddr.Lower)
		require.Equal(t, e.Addr, byAddr.GID.GID.Addr())
		require.NotZero(t, byAddr.MTU())
		byName, err := verbs.LookupNetdev(t.Context(), e.Netdev)
		require.NoError(t, err)
		require.Equal(t, byAddr, byName)
		mapped, err := verbs.LookupAddr(t.Context(), netip.AddrFrom16(e.Addr.As16()))
		require.NoError(t, err)
		require.Equal(t, byAddr, mapped)
	}
}

// Refusals are netpath's, in the words of this package.
func TestLookupRefusals(t *testing.T) {
	lab.Spare(t)
	ctx := t.Context()
	_, err := verbs.LookupAddr(ctx, netip.MustParseAddr("10.79.0.99"))
	require.ErrorIs(t, err, netpath.ErrNoAddress)
	require.ErrorContains(t, err, "verbs: look up 10.79.0.99: no such address on this host (there are: ")
	var op *verbs.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "10.79.0.99", op.Object)
	_, err = verbs.LookupNetdev(ctx, "lo")
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
	require.ErrorContains(t, err, "spare0 (rxespare)")
	_, err = verbs.ResolvePath(ctx, netip.MustParseAddr("203.0.113.1"))
	require.ErrorIs(t, err, netpath.ErrNoRoute)
	require.ErrorContains(t, err, "verbs: resolve the path to 203.0.113.1: no route: ")
	_, err = verbs.ResolvePathFrom(ctx, netip.MustParseAddr("10.79.0.99"), topo.SparePeer)
	require.ErrorIs(t, err, netpath.ErrNoAddress)
}

func TestLookupPathBetweenEndpoints(t *testing.T) {
	from := lab.Require(t, 1)[0]
	addrs := lab.Addrs()
	if len(addrs) < 2 {
		t.Skip("knows no other address: run in the lab")
	}
	p, err := verbs.ResolvePathFrom(t.Context(), from.Addr, addrs[1])
	require.NoError(t, err)
	require.Equal(t, from.Device, p.Device)
	require.Equal(t, from.Netdev, p.Netdev)
	require.Equal(t, from.Addr, p.Src)
	require.Equal(t, from.Addr, p.GID.GID.Addr())
	require.Equal(t, verbs.MTU4096, p.MTU)
	require.Len(t, p.MAC, 6)
	require.False(t, p.Loopback)
	if lab.Topology() != "ecmp" { // there a router is in between
		require.Equal(t, addrs[1], p.NextHop)
	}
	p, err = verbs.ResolvePath(t.Context(), from.Addr)
	require.NoError(t, err)
	require.True(t, p.Loopback)
	require.Equal(t, from.Device, p.Device)
	require.Equal(t, from.Addr, p.Src)
}

func TestLookupPathMTU(t *testing.T) {
	lab.Spare(t)
	lab.IP(t, "route", "add", "10.81.0.0/24", "via", topo.SparePeer.String(), "mtu", "2200")
	p, err := verbs.ResolvePath(t.Context(), netip.MustParseAddr("10.81.0.1"))
	require.NoError(t, err)
	require.Equal(t, topo.SpareDevice, p.Device)
	require.Equal(t, 2200, p.RouteMTU)
	require.Equal(t, verbs.MTU2048, p.MTU)
	require.Equal(t, verbs.MTU4096, p.Local.MTU())
	require.Equal(t, topo.SparePeer, p.NextHop)
	require.Len(t, p.MAC, 6)
}

func TestLookupPathIPv6(t *testing.T) {
	lab.Spare(t)
	own, peer := netip.MustParseAddr("fd00:79::1"), netip.MustParseAddr("fd00:79::2")
	lab.IP(t, "addr", "add", own.String()+"/64", "dev", topo.SpareNetdev, "nodad")
	lab.IP(t, "-n", topo.SpareNamespace, "addr", "add", peer.String()+"/64", "dev", "peer0", "nodad")
	_, err := lookupSoon(t, own)
	require.NoError(t, err)
	p, err := verbs.ResolvePath(t.Context(), peer)
	require.NoError(t, err)
	require.Equal(t, topo.SpareDevice, p.Device)
	require.Equal(t, own, p.Src)
	require.Equal(t, own, p.GID.GID.Addr())
	require.Len(t, p.MAC, 6)
	require.Equal(t, verbs.MTU4096, p.MTU)
}

func TestLookupStacked(t *testing.T) {
	lab.Spare(t)
	addr := netip.MustParseAddr("10.83.0.1")
	require.NoError(t, topo.AddVLAN("spare0.5", topo.SpareNetdev, 5, addr))
	l, err := lookupSoon(t, addr)
	require.NoError(t, err)
	require.Equal(t, topo.SpareDevice, l.Device)
	require.Equal(t, "spare0.5", l.Netdev)
	require.Equal(t, topo.SpareNetdev, l.Lower)
	require.Equal(t, addr, l.GID.GID.Addr())
}

// lookupSoon waits until the kernel has made the address a GID, which it does
// on a work queue.
func lookupSoon(t *testing.T, a netip.Addr) (l verbs.Local, err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		l, err = verbs.LookupAddr(t.Context(), a)
		return err == nil
	}, 5*time.Second, 50*time.Millisecond, "%v", err)
	return l, err
}

func TestLookupAfterAddressesWent(t *testing.T) {
	lab.Spare(t)
	lab.IP(t, "addr", "flush", "dev", topo.SpareNetdev)
	_, err := verbs.LookupAddr(t.Context(), topo.SpareAddr)
	require.ErrorIs(t, err, netpath.ErrNoAddress)
	// The kernel keeps the GID that it makes of the netdev's MAC.
	require.Eventually(t, func() bool {
		l, err := verbs.LookupNetdev(t.Context(), topo.SpareNetdev)
		return err == nil && l.GID.GID.Addr().IsLinkLocalUnicast()
	}, 5*time.Second, 50*time.Millisecond)
}

// What netpath reads in sysfs is what the device says when it is opened.
func TestLookupGIDsAgree(t *testing.T) {
	lab.Spare(t)
	addr := netip.MustParseAddr("10.83.0.1")
	require.NoError(t, topo.AddVLAN("spare0.5", topo.SpareNetdev, 5, addr))
	lab.IP(t, "addr", "add", "fd00:79::1/64", "dev", topo.SpareNetdev, "nodad")
	lab.IP(t, "addr", "add", "10.79.0.3/24", "dev", topo.SpareNetdev)
	for _, a := range []netip.Addr{addr, netip.MustParseAddr("fd00:79::1"), netip.MustParseAddr("10.79.0.3")} {
		_, err := lookupSoon(t, a)
		require.NoError(t, err)
	}
	netdevs, err := netpath.Netdevs(t.Context())
	require.NoError(t, err)
	devices, err := verbs.Devices()
	require.NoError(t, err)
	compared := 0
	for _, info := range devices {
		dev, err := verbs.Open(info.Name, verbs.DeviceConfig{})
		require.NoError(t, err)
		entries, err := dev.GIDs()
		require.NoError(t, errors.Join(err, dev.Close()))
		for _, e := range entries {
			i := slices.IndexFunc(netdevs, func(n netpath.Netdev) bool { return n.Index == e.IfIndex })
			require.GreaterOrEqual(t, i, 0, e)
			require.Equal(t, info.Name, netdevs[i].Device)
			got, err := netdevs[i].FindGID(t.Context(), e.GID.Addr())
			require.NoError(t, err)
			require.Equal(t, netpath.GID{Addr: e.GID.Addr(), Port: e.Port, Index: int(e.Index), RoCEv2: e.Type == verbs.GIDRoCEv2}, got)
			compared++
		}
	}
	require.GreaterOrEqual(t, compared, 5)
}
