package netpath

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// stack is a host with a bond of two NICs and a VLAN on it, a veth pair, and a
// bridge with a VLAN of a third NIC in it.
var stack = ifaces{
	{Netdev: Netdev{Index: 1, Name: "lo", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, loopback: true},
	{Netdev: Netdev{Index: 2, Name: "eth0"}, master: 4},
	{Netdev: Netdev{Index: 3, Name: "eth1"}, master: 4},
	{Netdev: Netdev{Index: 4, Name: "bond0", Kind: "bond"}},
	{Netdev: Netdev{Index: 5, Name: "bond0.7", Kind: "vlan", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, link: 4},
	{Netdev: Netdev{Index: 6, Name: "v0", Kind: "veth", Addrs: []netip.Addr{netip.MustParseAddr("fe80::1")}}, link: 2},
	{Netdev: Netdev{Index: 8, Name: "eth2"}},
	{Netdev: Netdev{Index: 9, Name: "eth2.5", Kind: "vlan", Addrs: []netip.Addr{netip.MustParseAddr("fe80::1")}}, link: 8, master: 10},
	{Netdev: Netdev{Index: 10, Name: "br0", Kind: "bridge"}},
	{Netdev: Netdev{Index: 11, Name: "loop0", Kind: "vlan"}, link: 11, master: 11},
}

func TestBelow(t *testing.T) {
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
			got = append(got, b.Name)
		}
		require.Equal(t, want, got, name)
	}
}

func TestPortOfNetdev(t *testing.T) {
	under := func(name string, ports ...rdmaPort) string {
		n, _ := stack.byName(name)
		got, ok := stack.withPort(n, ports)
		if !ok {
			return "none"
		}
		require.Equal(t, name, got.Name)
		return got.Device + " on " + got.Lower
	}
	first := rdmaPort{device: "mlx5_0", port: 1, ifIndex: 2}
	second := rdmaPort{device: "mlx5_1", port: 1, ifIndex: 3, active: true}
	require.Equal(t, "mlx5_0 on eth0", under("eth0", first, second))
	require.Equal(t, "mlx5_1 on eth1", under("bond0.7", first, second), "the one with a link")
	require.Equal(t, "mlx5_0 on eth0", under("bond0", first))
	require.Equal(t, "lag on bond0", under("bond0.7", rdmaPort{device: "lag", ifIndex: 4, active: true}, second))
	require.Equal(t, "none", under("v0", first, second))
	require.Equal(t, "none", under("bond0"))
	require.Equal(t, []string{"eth0 (mlx5_0)", "eth1 (mlx5_1)"}, stack.underRDMA([]rdmaPort{first, second, {device: "gone", ifIndex: 99}}))

	rows := stack.withPorts([]rdmaPort{first})
	require.Len(t, rows, len(stack))
	require.Equal(t, "mlx5_0", rows[4].Device)
	require.Equal(t, "eth0", rows[4].Lower)
	require.Empty(t, rows[0].Device)
}

func TestNetdevOfAddr(t *testing.T) {
	find := func(s string) string {
		n, ok := stack.byAddr(netip.MustParseAddr(s))
		if !ok {
			return "none"
		}
		return n.Name
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
