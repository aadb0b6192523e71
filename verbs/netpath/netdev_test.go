package netpath

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// stack is a host with a bond of two NICs and a VLAN on it, a veth pair, and a
// bridge with a VLAN of a third NIC in it.
var stack = ifaces{
	{Netdev: Netdev{Index: 1, Name: "lo", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Loopback: true}},
	{Netdev: Netdev{Index: 2, Name: "eth0"}, master: 4},
	{Netdev: Netdev{Index: 3, Name: "eth1"}, master: 4},
	{Netdev: Netdev{Index: 4, Name: "bond0", Kind: "bond"}},
	{Netdev: Netdev{Index: 5, Name: "bond0.7", Kind: "vlan", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, link: 4, tag: 7},
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
		got, ok := stack.withPort(n, ports, nil)
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

	// The GID tables decide among several, and find what lies on no port here.
	tables := tabled{5: {device: "mlx5_0", port: 1}, 6: {device: "mlx5_2", port: 2}, 2: {device: "mlx5_9"}}
	in := func(name string) Netdev {
		n, _ := stack.byName(name)
		got, ok := stack.withPort(n, []rdmaPort{first, second}, tables)
		require.True(t, ok)
		return got
	}
	require.Equal(t, "mlx5_0", in("bond0.7").Device)
	require.Equal(t, "eth0", in("bond0.7").Lower)
	require.Equal(t, 7, in("bond0.7").VLAN)
	require.Equal(t, "mlx5_1", in("bond0").Device, "without an entry")
	require.Zero(t, in("bond0").VLAN)
	require.Equal(t, "mlx5_0", in("eth0").Device, "its own port")
	require.Equal(t, "mlx5_2", in("v0").Device)
	require.EqualValues(t, 2, in("v0").Port)
	require.Empty(t, in("v0").Lower, "it is in another namespace")
	var unsure []string
	for _, n := range stack.unsure(stack, []rdmaPort{first, second}) {
		unsure = append(unsure, n.Name)
	}
	require.Equal(t, []string{"bond0", "bond0.7", "v0", "eth2", "eth2.5", "br0", "loop0"}, unsure)

	rows := stack.withPorts([]rdmaPort{first}, nil)
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
	require.Equal(t, "eth2.5", find("fe80::1%9"))
	require.Equal(t, "none", find("10.0.0.2"))
	_, ok := stack.byAddr(netip.Addr{})
	require.False(t, ok)
}

// A GID is a netdev's by its address: numbers and names repeat in other namespaces.
func TestGIDsOfNetdev(t *testing.T) {
	addr := netip.MustParseAddr
	n := Netdev{Name: "eth0", MAC: net.HardwareAddr{0x52, 0x54, 0, 0x77, 0, 1}, Addrs: []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}}
	for a, want := range map[string]bool{
		"10.0.0.1": true, "::ffff:10.0.0.1": true, "fd00::1": true, "10.0.0.2": false, "fd00::2": false,
		"fe80::5054:ff:fe77:1":      true, // of the MAC
		"fe80::5054:ff:fe77:1%eth0": true,
		"fe80::5254:ff:fe77:1":      true,
		"fe80::5054:0:577:1":        true, // with the number of a VLAN
		"fe80::5054:ff:fe77:2":      false,
		"fe80::5055:ff:fe77:1":      false,
		"fd00::5054:ff:fe77:1":      false,
	} {
		require.Equal(t, want, n.HasGID(addr(a)), a)
	}
	require.True(t, Netdev{Loopback: true}.HasGID(addr("10.0.0.9")))
	ib := Netdev{IPoIB: true, MAC: net.HardwareAddr{0x80, 0, 0, 0x48, 0xfe, 0x80, 19: 9}, Addrs: n.Addrs}
	require.True(t, ib.HasGID(addr("fe80::9")))
	require.False(t, ib.HasGID(addr("10.0.0.1")), "it is IP's alone")
	ib.MAC = ib.MAC[:6]
	require.False(t, ib.HasGID(addr("fe80::9")))
	require.False(t, Netdev{}.HasGID(addr("fe80::9")))
}

// Of two netdevs in one subnet the route leaves by one, and the source address may be the other's.
func TestRouteLeavesElsewhere(t *testing.T) {
	vlan, _ := stack.byName("bond0.7")
	eth0, _ := stack.byName("eth0")
	own := netip.MustParseAddr("10.0.0.1")
	require.NoError(t, stack.leaves("resolve", vlan, own, own))
	err := stack.leaves("resolve", eth0, own, netip.MustParseAddr("10.0.0.9"))
	require.ErrorIs(t, err, ErrNoGID)
	require.ErrorContains(t, err, "the source address 10.0.0.1 is on bond0.7, and the route leaves by eth0: ")
	require.ErrorContains(t, err, "ip rule add from 10.0.0.1")
}
