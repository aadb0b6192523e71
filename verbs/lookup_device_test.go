//go:build linux

package verbs_test

import (
	"context"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
	"github.com/goverbs/goverbs/verbs"
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

func TestLookupRefusals(t *testing.T) {
	lab.Spare(t)
	ctx := t.Context()
	_, err := verbs.LookupAddr(ctx, netip.MustParseAddr("10.79.0.99"))
	require.ErrorIs(t, err, verbs.ErrNoAddress)
	require.ErrorContains(t, err, "10.79.0.1 on spare0", "it says which ones there are")
	_, err = verbs.LookupNetdev(ctx, "nosuch0")
	require.ErrorIs(t, err, verbs.ErrNoNetdev)
	require.ErrorContains(t, err, "spare0")
	_, err = verbs.LookupNetdev(ctx, "lo")
	require.ErrorIs(t, err, verbs.ErrNotRDMA)
	require.ErrorContains(t, err, "spare0 (rxespare)")
	_, err = verbs.LookupAddr(ctx, netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, verbs.ErrNotRDMA)

	_, err = verbs.ResolvePath(ctx, netip.MustParseAddr("203.0.113.1"))
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	_, err = verbs.ResolvePath(ctx, netip.MustParseAddr("2001:db8::1"))
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	for _, s := range []string{"0.0.0.0", "::", "224.0.0.1", "ff02::1"} {
		_, err = verbs.ResolvePath(ctx, netip.MustParseAddr(s))
		require.ErrorIs(t, err, verbs.ErrNoRoute, s)
	}
	_, err = verbs.ResolvePath(ctx, netip.Addr{})
	require.ErrorIs(t, err, verbs.ErrNoRoute)
	_, err = verbs.ResolvePath(ctx, netip.MustParseAddr("fe80::1%nosuch0"))
	require.ErrorIs(t, err, verbs.ErrNoNetdev)
	_, err = verbs.ResolvePathFrom(ctx, netip.MustParseAddr("10.79.0.99"), topo.SparePeer)
	require.ErrorIs(t, err, verbs.ErrNoAddress)
	_, err = verbs.ResolvePath(ctx, netip.MustParseAddr("127.0.0.2"))
	require.ErrorIs(t, err, verbs.ErrNoAddress, "loopback without an address of its own")

	require.NoError(t, topo.SetUp(topo.SpareNetdev, false))
	_, err = verbs.LookupAddr(ctx, topo.SpareAddr)
	require.ErrorIs(t, err, verbs.ErrLinkDown)
	require.ErrorContains(t, err, "spare0 is down")
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = verbs.LookupAddr(done, topo.SpareAddr)
	require.ErrorIs(t, err, context.Canceled)
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

// runIP runs the program of that name, which has words for all that this test
// changes.
func runIP(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
}

func TestLookupPathNeighbours(t *testing.T) {
	lab.Spare(t)
	p, err := verbs.ResolvePath(t.Context(), topo.SparePeer)
	require.NoError(t, err)
	require.Equal(t, topo.SpareDevice, p.Device)
	require.Equal(t, topo.SpareAddr, p.Src)
	require.Equal(t, topo.SparePeer, p.NextHop)
	require.Len(t, p.MAC, 6)
	require.NotEqual(t, verbs.NeighbourFailed, p.Neighbour)

	// Forgotten: the kernel asks again.
	runIP(t, "neigh", "del", topo.SparePeer.String(), "dev", topo.SpareNetdev)
	again, err := verbs.ResolvePath(t.Context(), topo.SparePeer)
	require.NoError(t, err)
	require.Equal(t, p.MAC, again.MAC)
	require.Equal(t, verbs.NeighbourReachable, again.Neighbour)

	// Set by hand.
	runIP(t, "neigh", "replace", topo.SparePeer.String(), "dev", topo.SpareNetdev, "lladdr", "02:00:00:00:00:07", "nud", "permanent")
	fixed, err := verbs.ResolvePath(t.Context(), topo.SparePeer)
	require.NoError(t, err)
	require.Equal(t, "02:00:00:00:00:07", fixed.MAC.String())
	require.Equal(t, verbs.NeighbourPermanent, fixed.Neighbour)

	nobody := netip.MustParseAddr("10.79.0.77")
	_, err = verbs.ResolvePath(t.Context(), nobody)
	require.ErrorIs(t, err, verbs.ErrNoNeighbour)
	require.ErrorContains(t, err, "failed")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the kernel's verdict, not ours")
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = verbs.ResolvePath(short, netip.MustParseAddr("10.79.0.78"))
	require.ErrorIs(t, err, verbs.ErrNoNeighbour)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 3*time.Second)
}

func TestLookupPathGatewayAndMTU(t *testing.T) {
	lab.Spare(t)
	p, err := verbs.ResolvePath(t.Context(), topo.SpareBehind)
	require.NoError(t, err)
	require.Equal(t, topo.SparePeer, p.NextHop)
	require.Equal(t, topo.SpareBehind, p.Dst)
	require.Equal(t, verbs.MTU4096, p.MTU)
	require.Zero(t, p.RouteMTU)

	runIP(t, "route", "add", "10.81.0.0/24", "via", topo.SparePeer.String(), "mtu", "2200")
	p, err = verbs.ResolvePath(t.Context(), netip.MustParseAddr("10.81.0.1"))
	require.NoError(t, err)
	require.Equal(t, 2200, p.RouteMTU)
	require.Equal(t, verbs.MTU2048, p.MTU)

	require.NoError(t, topo.SetMTU(topo.SpareNetdev, 1500))
	p, err = verbs.ResolvePath(t.Context(), topo.SparePeer)
	require.NoError(t, err)
	require.Equal(t, 1500, p.NetdevMTU)
	require.Equal(t, verbs.MTU1024, p.MTU)

	for _, kind := range []string{"blackhole", "unreachable", "prohibit"} {
		runIP(t, "route", "add", kind, "10.82.0.0/24")
		_, err = verbs.ResolvePath(t.Context(), netip.MustParseAddr("10.82.0.1"))
		require.ErrorIs(t, err, verbs.ErrNoRoute, kind)
		runIP(t, "route", "del", kind, "10.82.0.0/24")
	}
}

func TestLookupPathIPv6(t *testing.T) {
	lab.Spare(t)
	own, peer := netip.MustParseAddr("fd00:79::1"), netip.MustParseAddr("fd00:79::2")
	runIP(t, "addr", "add", own.String()+"/64", "dev", topo.SpareNetdev, "nodad")
	runIP(t, "-n", topo.SpareNamespace, "addr", "add", peer.String()+"/64", "dev", "peer0", "nodad")
	_, err := lookupSoon(t, own)
	require.NoError(t, err)
	p, err := verbs.ResolvePath(t.Context(), peer)
	require.NoError(t, err)
	require.Equal(t, topo.SpareDevice, p.Device)
	require.Equal(t, own, p.Src)
	require.Equal(t, own, p.GID.GID.Addr())
	require.Len(t, p.MAC, 6)
	require.Equal(t, verbs.MTU4096, p.MTU)

	// IPv4 by way of an IPv6 router.
	runIP(t, "route", "add", "10.84.0.0/24", "via", "inet6", peer.String(), "dev", topo.SpareNetdev)
	via, err := verbs.ResolvePathFrom(t.Context(), topo.SpareAddr, netip.MustParseAddr("10.84.0.1"))
	require.NoError(t, err)
	require.Equal(t, peer, via.NextHop)
	require.Equal(t, p.MAC, via.MAC)
	require.Equal(t, topo.SpareAddr, via.GID.GID.Addr())
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
	list, err := verbs.Netdevs(t.Context())
	require.NoError(t, err)
	found := false
	for _, n := range list {
		if n.Name == "spare0.5" {
			found = true
			require.Equal(t, "vlan", n.Kind)
			require.Equal(t, topo.SpareDevice, n.Device)
			require.Equal(t, topo.SpareNetdev, n.Lower)
		}
	}
	require.True(t, found)
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
	runIP(t, "addr", "flush", "dev", topo.SpareNetdev)
	_, err := verbs.LookupAddr(t.Context(), topo.SpareAddr)
	require.ErrorIs(t, err, verbs.ErrNoAddress)
	// The kernel keeps the GID that it makes of the netdev's MAC.
	require.Eventually(t, func() bool {
		l, err := verbs.LookupNetdev(t.Context(), topo.SpareNetdev)
		return err == nil && l.GID.GID.Addr().IsLinkLocalUnicast()
	}, 5*time.Second, 50*time.Millisecond)
}
