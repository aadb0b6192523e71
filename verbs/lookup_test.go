package verbs

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLookupMTU(t *testing.T) {
	for _, c := range []struct{ netdev, want int }{
		{0, 0}, {68, 0}, {351, 0}, {352, 256}, {1280, 1024}, {1500, 1024}, {2143, 1024}, {2144, 2048}, {4191, 2048},
		{4192, 4096}, {4200, 4096}, {9000, 4096}, {65536, 4096}, {-1, 0},
	} {
		require.Equal(t, c.want, RoCEMTU(c.netdev).Bytes(), "netdev %d", c.netdev)
	}
	for _, c := range []struct {
		link          LinkLayer
		port          MTU
		netdev, route int
		want          MTU
	}{
		{LinkEthernet, MTU4096, 4200, 0, MTU4096},
		{LinkEthernet, MTU4096, 1500, 0, MTU1024},
		{LinkEthernet, MTU1024, 9000, 0, MTU1024},
		{LinkEthernet, MTU4096, 9000, 2200, MTU2048},
		{LinkEthernet, MTU4096, 9000, 9000, MTU4096},
		{LinkEthernet, MTU4096, 9000, 100, 0},
		{LinkInfiniBand, MTU4096, 2044, 1000, MTU4096},
	} {
		require.Equal(t, c.want, pathMTU(c.link, c.port, c.netdev, c.route), "%+v", c)
	}
}

// stack is a host with a bond of two NICs and a VLAN on it, a veth pair, and a
// bridge with a VLAN of a third NIC in it.
var stack = ifaces{
	{index: 1, name: "lo", loopback: true, addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
	{index: 2, name: "eth0", master: 4},
	{index: 3, name: "eth1", master: 4},
	{index: 4, name: "bond0", kind: "bond"},
	{index: 5, name: "bond0.7", kind: "vlan", link: 4, addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
	{index: 6, name: "v0", kind: "veth", link: 2, addrs: []netip.Addr{netip.MustParseAddr("fe80::1")}},
	{index: 8, name: "eth2"},
	{index: 9, name: "eth2.5", kind: "vlan", link: 8, master: 10, addrs: []netip.Addr{netip.MustParseAddr("fe80::1")}},
	{index: 10, name: "br0", kind: "bridge"},
	{index: 11, name: "loop0", kind: "vlan", link: 11, master: 11},
}

func TestLookupBelow(t *testing.T) {
	for name, want := range map[string][]string{
		"lo":      {"lo"},
		"eth0":    {"eth0"},
		"bond0":   {"bond0", "eth0", "eth1"},
		"bond0.7": {"bond0.7", "bond0", "eth0", "eth1"},
		"v0":      {"v0"}, // its link is the peer, in whatever namespace
		"br0":     {"br0", "eth2.5", "eth2"},
		"loop0":   {"loop0"}, // cannot be, and must end
	} {
		n, ok := stack.byName(name)
		require.True(t, ok)
		var got []string
		for _, b := range stack.below(n) {
			got = append(got, b.name)
		}
		require.Equal(t, want, got, name)
	}
}

func TestLookupPortUnder(t *testing.T) {
	under := func(name string, ports ...rdmaPort) string {
		n, _ := stack.byName(name)
		p, lower, ok := stack.portUnder(n, ports)
		if !ok {
			return "none"
		}
		return p.device + " on " + lower.name
	}
	first := rdmaPort{device: "mlx5_0", port: 1, ifIndex: 2}
	second := rdmaPort{device: "mlx5_1", port: 1, ifIndex: 3, active: true}
	require.Equal(t, "mlx5_0 on eth0", under("eth0", first, second))
	require.Equal(t, "mlx5_1 on eth1", under("bond0.7", first, second), "the one with a link")
	require.Equal(t, "mlx5_0 on eth0", under("bond0", first))
	require.Equal(t, "lag on bond0", under("bond0.7", rdmaPort{device: "lag", ifIndex: 4, active: true}, second))
	require.Equal(t, "none", under("v0", first, second))
	require.Equal(t, "none", under("bond0"))
	require.Equal(t, []string{"eth0 (mlx5_0)", "eth1 (mlx5_1)"}, stack.withRDMA([]rdmaPort{first, second, {device: "gone", ifIndex: 99}}))

	rows := stack.rows([]rdmaPort{first})
	require.Len(t, rows, len(stack))
	require.Equal(t, "mlx5_0", rows[4].Device)
	require.Equal(t, "eth0", rows[4].Lower)
	require.Empty(t, rows[0].Device)
}

func TestLookupByAddr(t *testing.T) {
	find := func(s string) string {
		n, ok := stack.byAddr(netip.MustParseAddr(s))
		if !ok {
			return "none"
		}
		return n.name
	}
	require.Equal(t, "bond0.7", find("10.0.0.1"))
	require.Equal(t, "bond0.7", find("::ffff:10.0.0.1"))
	require.Equal(t, "v0", find("fe80::1"))
	require.Equal(t, "eth2.5", find("fe80::1%eth2.5"))
	require.Equal(t, "none", find("fe80::1%eth2"))
	require.Equal(t, "none", find("10.0.0.2"))
	_, ok := stack.byAddr(netip.Addr{})
	require.False(t, ok)
}

func TestLookupGIDOn(t *testing.T) {
	v4 := netip.MustParseAddr("10.0.0.1")
	ib := GID{0xfe, 0x80, 7: 1, 15: 9}
	all := []GIDEntry{
		{GID: GIDOf(netip.MustParseAddr("fe80::1")), Type: GIDRoCEv2, Port: 1, Index: 0, IfIndex: 5},
		{GID: GIDOf(v4), Type: GIDRoCEv1, Port: 1, Index: 1, IfIndex: 5},
		{GID: GIDOf(v4), Type: GIDRoCEv2, Port: 1, Index: 2, IfIndex: 5},
		{GID: GIDOf(v4), Type: GIDRoCEv2, Port: 1, Index: 3, IfIndex: 6}, // the same address elsewhere
		{GID: ib, Type: GIDInfiniBand, Port: 2, Index: 0},
	}
	on := func(n netdev, a netip.Addr) int {
		e, ok := gidOn(all, n, a)
		if !ok {
			return -1
		}
		return int(e.Port)*100 + int(e.Index)
	}
	require.Equal(t, 102, on(netdev{index: 5}, v4))
	require.Equal(t, 102, on(netdev{index: 5}, netip.Addr{}), "the likeliest one")
	require.Equal(t, 103, on(netdev{index: 6}, v4))
	require.Equal(t, 100, on(netdev{index: 5}, netip.MustParseAddr("fe80::1%eth5")))
	require.Equal(t, -1, on(netdev{index: 7}, v4))
	require.Equal(t, -1, on(netdev{index: 5}, netip.MustParseAddr("10.0.0.2")))
	mac := append(net.HardwareAddr{0x80, 0, 0, 0x48}, ib[:]...)
	require.Equal(t, 200, on(netdev{index: 9, infiniband: true, mac: mac}, v4), "by its link-layer address")
	require.Equal(t, -1, on(netdev{index: 9, infiniband: true, mac: mac[:6]}, v4))

	err := noGID("look up", "10.0.0.2 on mlx5_0", all[:2])
	require.ErrorIs(t, err, ErrNoGID)
	require.ErrorContains(t, err, "fe80::1")
	require.ErrorContains(t, err, "RoCE v1 10.0.0.1")
	require.ErrorContains(t, noGID("look up", "x", nil), "none at all")
}

func TestLookupNeighbourStates(t *testing.T) {
	for s, name := range map[NeighbourState]string{
		NeighbourNone: "none", NeighbourIncomplete: "incomplete", NeighbourReachable: "reachable", NeighbourStale: "stale",
		NeighbourDelay: "delay", NeighbourProbe: "probe", NeighbourFailed: "failed", NeighbourNoARP: "noarp",
		NeighbourPermanent: "permanent", 0x300: "NeighbourState(0x300)",
	} {
		require.Equal(t, name, s.String())
	}
	require.False(t, NeighbourNone.known() || NeighbourIncomplete.known() || NeighbourFailed.known())
	require.True(t, NeighbourStale.known() && NeighbourPermanent.known() && NeighbourNoARP.known())
}

func TestLookupWithoutDevices(t *testing.T) {
	if runtime.GOOS != "linux" {
		_, err := ResolvePath(context.Background(), netip.MustParseAddr("127.0.0.1"))
		require.ErrorIs(t, err, ErrUnsupported)
		return
	}
	// On every Linux: lo is up, and never RDMA's.
	_, err := LookupNetdev(t.Context(), "lo")
	require.ErrorIs(t, err, ErrNotRDMA)
	_, err = LookupAddr(t.Context(), netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, ErrNotRDMA)
	_, err = LookupNetdev(t.Context(), "no/such")
	require.ErrorIs(t, err, ErrNoNetdev)
	list, err := Netdevs(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, list)
}
