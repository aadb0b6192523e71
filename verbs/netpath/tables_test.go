package netpath

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// hca is an InfiniBand HCA with ports that have other GUIDs than the node, beside two
// RoCE ports in one bridge.
func hca() *sysfs {
	s := &sysfs{MapFS: fstest.MapFS{}}
	s.add("mlx5_0/ports/1", [3]string{"fe80:0000:0000:0000:0015:5dff:fe33:ff7c", v1, ""})
	s.add("mlx5_0/ports/2", [3]string{"fe80:0000:0000:0000:0015:5dff:fe33:ff7d", v1, ""})
	s.add("mlx5_1/ports/1", [3]string{linkV6, v2, "eth0"}, [3]string{free, "", ""}, [3]string{ten2, v2, "mv0"}, [3]string{ten1, v2, "br0"})
	s.add("mlx5_2/ports/1", [3]string{ten1, v1, "br0"}, [3]string{ten1, v2, "br0"}, [3]string{"", "", ""})
	s.MapFS["mlx5_0/node_guid"] = &fstest.MapFile{Data: []byte("0015:5dff:fd33:ff7c\n")}
	s.MapFS["mlx5_1/ports/1/state"] = &fstest.MapFile{Data: []byte("1: DOWN\n")}
	s.MapFS["mlx5_2/ports/1/state"] = &fstest.MapFile{Data: []byte("4: ACTIVE\n")}
	return s
}

func TestPortsByGIDTables(t *testing.T) {
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	ib := func(index int, name string, last byte) iface {
		mac := net.HardwareAddr{0, 0, 1, 0x48, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x15, 0x5d, 0xff, 0xfe, 0x33, 0xff, last}
		return iface{Netdev: Netdev{Name: name, Index: index, IPoIB: true, MAC: mac, Addrs: []netip.Addr{one}}}
	}
	pod := ifaces{
		ib(2, "ib0", 0x7c), ib(3, "ib1", 0x7d), ib(4, "ib2", 0x7e),
		{Netdev: Netdev{Index: 5, Name: "mv0", Kind: "macvlan", Addrs: []netip.Addr{two}}},  // its lower netdev is elsewhere
		{Netdev: Netdev{Index: 6, Name: "br0", Kind: "bridge", Addrs: []netip.Addr{one}}},   // at two ports
		{Netdev: Netdev{Index: 7, Name: "eth0", Kind: "veth", Addrs: []netip.Addr{one}}},    // named as the host's NIC
		{Netdev: Netdev{Index: 8, Name: "mv1", Kind: "macvlan", Addrs: []netip.Addr{two}}},  // with an address that mv0 has too
		{Netdev: Netdev{Index: 9, Name: "mv9", Kind: "macvlan", Addrs: []netip.Addr{one}}},  // as br0
		{Netdev: Netdev{Index: 10, Name: "new0", Kind: "macvlan", Addrs: []netip.Addr{{}}}}, // without an address
	}
	got, err := readTables(t.Context(), hca(), pod)
	require.NoError(t, err)
	require.Equal(t, tabled{
		2: {"mlx5_0", 1, 2, false},
		3: {"mlx5_0", 2, 3, false},
		5: {"mlx5_1", 1, 5, false},
		6: {"mlx5_2", 1, 6, true},
	}, got)

	// What is found becomes the netdev's port.
	n, ok := pod.withPort(pod[1], nil, got)
	require.True(t, ok)
	require.Equal(t, "mlx5_0", n.Device)
	require.EqualValues(t, 2, n.Port)
	require.Equal(t, "ib1", n.Lower)
	n, ok = pod.withPort(pod[3], []rdmaPort{{"mlx5_1", 1, 99, true}}, got)
	require.True(t, ok)
	require.Equal(t, "mlx5_1", n.Device)
	require.Empty(t, n.Lower)

	s := hca()
	got, err = readTables(t.Context(), s, nil)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Zero(t, s.read, "nothing is in question")
	got, err = readTables(t.Context(), infiniband(t.TempDir()+"/none"), pod)
	require.NoError(t, err, "no RDMA here")
	require.Empty(t, got)
	broken := hca()
	delete(broken.MapFS, "mlx5_1/ports/1/gids/0")
	_, err = readTables(t.Context(), broken, pod)
	require.ErrorIs(t, err, fs.ErrNotExist)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = readTables(done, hca(), pod)
	require.True(t, errors.Is(err, context.Canceled), err)
}
