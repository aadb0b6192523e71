//go:build linux

package netpath_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
	"github.com/goverbs/goverbs/verbs/netpath"
)

func TestEndpoints(t *testing.T) {
	for _, e := range lab.Require(t, 1) {
		byAddr, err := netpath.LookupAddr(t.Context(), e.Addr)
		require.NoError(t, err)
		require.Equal(t, e.Device, byAddr.Device)
		require.Equal(t, e.Netdev, byAddr.Name)
		require.Equal(t, e.Netdev, byAddr.Lower)
		require.Equal(t, e.Addr, byAddr.Addr)
		byName, err := netpath.LookupNetdev(t.Context(), e.Netdev)
		require.NoError(t, err)
		require.Equal(t, byAddr.Netdev, byName)
		mapped, err := netpath.LookupAddr(t.Context(), netip.AddrFrom16(e.Addr.As16()))
		require.NoError(t, err)
		require.Equal(t, byAddr, mapped)
		gid, err := byAddr.FindGID(t.Context(), e.Addr)
		require.NoError(t, err)
		require.Equal(t, e.Addr, gid.Addr)
		require.Equal(t, byAddr.Port, gid.Port)
	}
}

func TestRefusals(t *testing.T) {
	lab.Spare(t)
	ctx := t.Context()
	_, err := netpath.LookupAddr(ctx, netip.MustParseAddr("10.79.0.99"))
	require.ErrorIs(t, err, netpath.ErrNoAddress)
	require.ErrorContains(t, err, "10.79.0.1 on spare0", "it says which ones there are")
	_, err = netpath.LookupNetdev(ctx, "nosuch0")
	require.ErrorIs(t, err, netpath.ErrNoNetdev)
	require.ErrorContains(t, err, "spare0")
	_, err = netpath.LookupNetdev(ctx, "lo")
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
	require.ErrorContains(t, err, "spare0 (rxespare)")
	_, err = netpath.LookupAddr(ctx, netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, netpath.ErrNotRDMA)

	_, err = netpath.Resolve(ctx, netip.MustParseAddr("203.0.113.1"))
	require.ErrorIs(t, err, netpath.ErrNoRoute)
	_, err = netpath.Resolve(ctx, netip.MustParseAddr("2001:db8::1"))
	require.ErrorIs(t, err, netpath.ErrNoRoute)
	for _, s := range []string{"0.0.0.0", "::", "224.0.0.1", "ff02::1"} {
		_, err = netpath.Resolve(ctx, netip.MustParseAddr(s))
		require.ErrorIs(t, err, netpath.ErrNoRoute, s)
	}
	_, err = netpath.Resolve(ctx, netip.Addr{})
	require.ErrorIs(t, err, netpath.ErrNoRoute)
	_, err = netpath.Resolve(ctx, netip.MustParseAddr("fe80::1%nosuch0"))
	require.ErrorIs(t, err, netpath.ErrNoNetdev)
	_, err = netpath.ResolveFrom(ctx, netip.MustParseAddr("10.79.0.99"), topo.SparePeer)
	require.ErrorIs(t, err, netpath.ErrNoAddress)
	_, err = netpath.Resolve(ctx, netip.MustParseAddr("127.0.0.2"))
	require.ErrorIs(t, err, netpath.ErrNotRDMA, "all of 127.0.0.0/8 is on lo")

	require.NoError(t, topo.SetUp(topo.SpareNetdev, false))
	_, err = netpath.LookupAddr(ctx, topo.SpareAddr)
	require.ErrorIs(t, err, netpath.ErrLinkDown)
	require.ErrorContains(t, err, "spare0 is down")
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = netpath.LookupAddr(done, topo.SpareAddr)
	require.ErrorIs(t, err, context.Canceled)
}

func TestBetweenEndpoints(t *testing.T) {
	from := lab.Require(t, 1)[0]
	addrs := lab.Addrs()
	if len(addrs) < 2 {
		t.Skip("knows no other address: run in the lab")
	}
	p, err := netpath.Resolve(t.Context(), from.Addr)
	require.NoError(t, err)
	require.True(t, p.Loopback)
	require.Equal(t, from.Device, p.Local.Device)
	require.Equal(t, from.Addr, p.Local.Addr)
	require.Equal(t, p.Local.MAC, p.MAC)
	require.Equal(t, netpath.NeighbourPermanent, p.Neighbour)
	p, err = netpath.ResolveFrom(t.Context(), from.Addr, addrs[1])
	require.NoError(t, err)
	require.Equal(t, from.Device, p.Local.Device)
	require.Equal(t, from.Addr, p.Src)
	require.Equal(t, from.Addr, p.Local.Addr)
	require.Equal(t, 4096, p.MTU)
	require.Len(t, p.MAC, 6)
}

func TestNeighbours(t *testing.T) {
	lab.Spare(t)
	p, err := netpath.Resolve(t.Context(), topo.SparePeer)
	require.NoError(t, err)
	require.Equal(t, topo.SpareDevice, p.Local.Device)
	require.Equal(t, topo.SpareAddr, p.Src)
	require.Equal(t, topo.SparePeer, p.NextHop)
	require.Len(t, p.MAC, 6)
	require.NotEqual(t, netpath.NeighbourFailed, p.Neighbour)

	// Forgotten: the kernel asks again.
	lab.IP(t, "neigh", "del", topo.SparePeer.String(), "dev", topo.SpareNetdev)
	again, err := netpath.Resolve(t.Context(), topo.SparePeer)
	require.NoError(t, err)
	require.Equal(t, p.MAC, again.MAC)
	require.Equal(t, netpath.NeighbourReachable, again.Neighbour)

	// Set by hand.
	lab.IP(t, "neigh", "replace", topo.SparePeer.String(), "dev", topo.SpareNetdev, "lladdr", "02:00:00:00:00:07", "nud", "permanent")
	fixed, err := netpath.Resolve(t.Context(), topo.SparePeer)
	require.NoError(t, err)
	require.Equal(t, "02:00:00:00:00:07", fixed.MAC.String())
	require.Equal(t, netpath.NeighbourPermanent, fixed.Neighbour)

	nobody := netip.MustParseAddr("10.79.0.77")
	_, err = netpath.Resolve(t.Context(), nobody)
	require.ErrorIs(t, err, netpath.ErrNoNeighbour)
	require.ErrorContains(t, err, "failed")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the kernel's verdict, not ours")
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = netpath.Resolve(short, netip.MustParseAddr("10.79.0.78"))
	require.ErrorIs(t, err, netpath.ErrNoNeighbour)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 3*time.Second)
}

func TestGatewayAndMTU(t *testing.T) {
	lab.Spare(t)
	p, err := netpath.Resolve(t.Context(), topo.SpareBehind)
	require.NoError(t, err)
	require.Equal(t, topo.SparePeer, p.NextHop)
	require.Equal(t, topo.SpareBehind, p.Dst)
	require.Equal(t, 4096, p.MTU)
	require.Zero(t, p.RouteMTU)

	lab.IP(t, "route", "add", "10.81.0.0/24", "via", topo.SparePeer.String(), "mtu", "2200")
	p, err = netpath.Resolve(t.Context(), netip.MustParseAddr("10.81.0.1"))
	require.NoError(t, err)
	require.Equal(t, 2200, p.RouteMTU)
	require.Equal(t, 2048, p.MTU)

	require.NoError(t, topo.SetMTU(topo.SpareNetdev, 1500))
	p, err = netpath.Resolve(t.Context(), topo.SparePeer)
	require.NoError(t, err)
	require.Equal(t, 1500, p.Local.MTU)
	require.Equal(t, 1024, p.MTU)

	for _, kind := range []string{"blackhole", "unreachable", "prohibit"} {
		lab.IP(t, "route", "add", kind, "10.82.0.0/24")
		_, err = netpath.Resolve(t.Context(), netip.MustParseAddr("10.82.0.1"))
		require.ErrorIs(t, err, netpath.ErrNoRoute, kind)
		lab.IP(t, "route", "del", kind, "10.82.0.0/24")
	}
}

func TestIPv6(t *testing.T) {
	lab.Spare(t)
	own, peer := netip.MustParseAddr("fd00:79::1"), netip.MustParseAddr("fd00:79::2")
	lab.IP(t, "addr", "add", own.String()+"/64", "dev", topo.SpareNetdev, "nodad")
	lab.IP(t, "-n", topo.SpareNamespace, "addr", "add", peer.String()+"/64", "dev", "peer0", "nodad")
	p, err := netpath.Resolve(t.Context(), peer)
	require.NoError(t, err)
	require.Equal(t, topo.SpareDevice, p.Local.Device)
	require.Equal(t, own, p.Src)
	require.Equal(t, own, p.Local.Addr)
	require.Equal(t, own, gidSoon(t, p.Local).Addr)
	require.Len(t, p.MAC, 6)
	require.Equal(t, 4096, p.MTU)

	// IPv4 by way of an IPv6 router.
	lab.IP(t, "route", "add", "10.84.0.0/24", "via", "inet6", peer.String(), "dev", topo.SpareNetdev)
	via, err := netpath.ResolveFrom(t.Context(), topo.SpareAddr, netip.MustParseAddr("10.84.0.1"))
	require.NoError(t, err)
	require.Equal(t, peer, via.NextHop)
	require.Equal(t, p.MAC, via.MAC)
	require.Equal(t, topo.SpareAddr, via.Local.Addr)
}

// gidSoon waits until the kernel has made the address a GID, which it does on a
// work queue.
func gidSoon(t *testing.T, l netpath.Local) (g netpath.GID) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		g, err = l.FindGID(t.Context(), l.Addr)
		return err == nil
	}, 5*time.Second, 50*time.Millisecond, "%v", err)
	return g
}

func TestStacked(t *testing.T) {
	lab.Spare(t)
	addr := netip.MustParseAddr("10.83.0.1")
	require.NoError(t, topo.AddVLAN("spare0.5", topo.SpareNetdev, 5, addr))
	l, err := netpath.LookupAddr(t.Context(), addr)
	require.NoError(t, err)
	require.Equal(t, topo.SpareDevice, l.Device)
	require.Equal(t, "spare0.5", l.Name)
	require.Equal(t, topo.SpareNetdev, l.Lower)
	gid := gidSoon(t, l)
	require.Equal(t, addr, gid.Addr)
	list, err := netpath.Netdevs(t.Context())
	require.NoError(t, err)
	require.Contains(t, list, l.Netdev)
	require.Equal(t, "vlan", l.Kind)
}
