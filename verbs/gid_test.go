package verbs

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/netpath"
)

func TestGIDIsChosenByTypeAndAddress(t *testing.T) {
	entry := func(index uint8, typ GIDType, addr string) GIDEntry {
		return GIDEntry{Index: index, Port: 1, Type: typ, GID: GIDOf(netip.MustParseAddr(addr))}
	}
	// In an order in which no rule "take the first" or "take the last" works.
	table := []GIDEntry{
		entry(0, GIDRoCEv2, "fe80::1"),
		entry(1, GIDRoCEv1, "10.77.0.1"),
		entry(2, GIDRoCEv2, "10.77.0.1"),
		entry(3, GIDRoCEv2, "2001:db8::1"),
		entry(4, GIDInfiniBand, "fe80::2"),
	}
	v1, ib := GIDRoCEv1, GIDInfiniBand
	for _, c := range []struct {
		name string
		q    GIDQuery
		want int // index, -1 for none
	}{
		{"anything", GIDQuery{}, 2},
		{"by address", GIDQuery{Addr: netip.MustParseAddr("2001:db8::1")}, 3},
		{"IPv4", GIDQuery{Addr: netip.MustParseAddr("10.77.0.1")}, 2},
		{"IPv4-mapped is the same", GIDQuery{Addr: netip.MustParseAddr("::ffff:10.77.0.1")}, 2},
		{"link local with a zone", GIDQuery{Addr: netip.MustParseAddr("fe80::1%eth0")}, 0},
		{"by type", GIDQuery{Type: &v1}, 1},
		{"InfiniBand, which is type 0", GIDQuery{Type: &ib}, 4},
		{"both", GIDQuery{Type: &ib, Addr: netip.MustParseAddr("10.77.0.1")}, -1},
		{"port", GIDQuery{Port: 2}, -1},
		{"netdev", GIDQuery{IfIndex: 7}, -1},
	} {
		e, ok := c.q.choose(table, place{})
		require.Equal(t, c.want >= 0, ok, c.name)
		if ok {
			require.EqualValues(t, c.want, e.Index, c.name)
		}
	}
}

// hostPlace is a network namespace with a NIC, a VLAN on it that has the same link-local
// address, two IPoIB netdevs on one HCA, and a macvlan.
func hostPlace() place {
	addr := netip.MustParseAddr
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{0x52, 0x54, 0, 0, 0, last} }
	ib := func(last byte) net.HardwareAddr { return net.HardwareAddr{0, 0, 0, 0x48, 0xfe, 0x80, 19: last} }
	return place{known: true, netdevs: []netpath.Netdev{
		{Name: "lo", Index: 1, Loopback: true},
		{Name: "eth0", Index: 2, MAC: mac(1), Addrs: []netip.Addr{addr("fe80::1"), addr("10.0.0.1")}},
		{Name: "eth0.5", Index: 5, MAC: mac(1), Addrs: []netip.Addr{addr("fe80::1"), addr("10.5.0.1")}},
		{Name: "ib0", Index: 7, IPoIB: true, MAC: ib(1), Addrs: []netip.Addr{addr("10.7.0.1")}},
		{Name: "ib1", Index: 8, IPoIB: true, MAC: ib(2), Addrs: []netip.Addr{addr("10.8.0.1"), addr("fe80::8")}},
		{Name: "mv0", Index: 9, MAC: mac(9), Addrs: []netip.Addr{addr("10.9.0.1")}},
	}}
}

func TestGIDOfANetdev(t *testing.T) {
	entry := func(index, port uint8, ifIndex int, typ GIDType, addr string) GIDEntry {
		return GIDEntry{Index: index, Port: port, IfIndex: ifIndex, Type: typ, GID: GIDOf(netip.MustParseAddr(addr))}
	}
	roce := []GIDEntry{
		entry(0, 1, 2, GIDRoCEv2, "fe80::1"),
		entry(1, 1, 5, GIDRoCEv2, "fe80::1"),
		entry(2, 1, 5, GIDRoCEv1, "10.5.0.1"),
		entry(3, 1, 2, GIDRoCEv2, "10.0.0.1"),
		entry(4, 1, 9, GIDRoCEv2, "fe80::5054:ff:fe00:9"),
	}
	ib := []GIDEntry{entry(0, 1, 0, GIDInfiniBand, "fe80::1"), entry(1, 2, 0, GIDInfiniBand, "fe80::2")}
	// Of another namespace: its numbers and some of its addresses exist here too.
	foreign := []GIDEntry{
		entry(5, 1, 2, GIDRoCEv2, "10.77.0.1"),
		entry(6, 1, 9, GIDRoCEv2, "10.0.0.1"),
		entry(7, 1, 33, GIDRoCEv2, "10.0.0.1"),
		entry(8, 1, 9, GIDRoCEv2, "10.9.0.1"), // this one is of here
	}
	for _, c := range []struct {
		name  string
		table []GIDEntry
		q     GIDQuery
		want  int
	}{
		{"the NIC's", roce, GIDQuery{Addr: netip.MustParseAddr("fe80::1%eth0")}, 0},
		{"the VLAN's", roce, GIDQuery{Addr: netip.MustParseAddr("fe80::1%eth0.5")}, 1},
		{"the VLAN's by number", roce, GIDQuery{Addr: netip.MustParseAddr("fe80::1%5")}, 1},
		{"of no netdev", roce, GIDQuery{Addr: netip.MustParseAddr("fe80::1%eth9")}, -1},
		{"the netdev's", roce, GIDQuery{IfIndex: 5}, 1},
		{"RoCE v1 of a VLAN", roce, GIDQuery{Addr: netip.MustParseAddr("10.5.0.1")}, 2},
		{"of a MAC", roce, GIDQuery{IfIndex: 9}, 4},
		{"port 1 by the address of ib0", ib, GIDQuery{Addr: netip.MustParseAddr("10.7.0.1")}, 0},
		{"port 2 by the address of ib1", ib, GIDQuery{Addr: netip.MustParseAddr("10.8.0.1")}, 1},
		{"port 2 by the link-local address of ib1", ib, GIDQuery{Addr: netip.MustParseAddr("fe80::8%ib1")}, 1},
		{"port 2 by its GID", ib, GIDQuery{Addr: netip.MustParseAddr("fe80::2")}, 1},
		{"of RoCE", ib, GIDQuery{Addr: netip.MustParseAddr("10.0.0.1")}, -1},
		{"of this namespace", foreign, GIDQuery{}, 8},
		{"only of other namespaces", foreign[:3], GIDQuery{}, -1},
		{"only of other namespaces, by address", foreign[:3], GIDQuery{Addr: netip.MustParseAddr("10.0.0.1")}, -1},
		{"any GID on lo", []GIDEntry{entry(0, 1, 1, GIDRoCEv2, "10.3.3.3")}, GIDQuery{}, 0},
	} {
		e, ok := c.q.choose(c.table, hostPlace())
		require.Equal(t, c.want >= 0, ok, c.name)
		if ok {
			require.EqualValues(t, c.want, e.Index, c.name)
		}
	}
	e, ok := GIDQuery{}.choose(foreign[:1], place{})
	require.True(t, ok, "without netlink nothing is known of namespaces")
	require.EqualValues(t, 5, e.Index)
}

// A port that is down is the last choice.
func TestGIDOfAnActivePort(t *testing.T) {
	table := []GIDEntry{
		{GID: GIDOf(netip.MustParseAddr("10.0.0.1")), Type: GIDRoCEv2, Port: 1},
		{GID: GIDOf(netip.MustParseAddr("fe80::1")), Type: GIDRoCEv1, Port: 2},
	}
	here := place{}
	here.down[1] = true
	e, ok := GIDQuery{}.choose(table, here)
	require.True(t, ok)
	require.EqualValues(t, 2, e.Port)
	here.down[2] = true
	e, ok = GIDQuery{}.choose(table, here)
	require.True(t, ok)
	require.EqualValues(t, 1, e.Port)
	for state, want := range map[PortState]bool{PortActive: true, PortActiveDefer: true, PortDown: false, PortInit: false, PortArmed: false} {
		require.Equal(t, want, state.carries(), state)
	}
}
