package verbs

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/netpath"
)

func TestLookupMTU(t *testing.T) {
	require.Zero(t, roceMTU(351))
	for ip, want := range map[int]MTU{352: MTU256, 800: MTU512, 1500: MTU1024, 2200: MTU2048, 4200: MTU4096, 9000: MTU4096} {
		require.Equal(t, want, roceMTU(ip), "%d bytes", ip)
	}
	for _, c := range []struct {
		link           LinkLayer
		port, ip, want MTU
	}{
		{LinkEthernet, MTU4096, MTU4096, MTU4096},
		{LinkEthernet, MTU4096, MTU1024, MTU1024},
		{LinkEthernet, MTU1024, MTU4096, MTU1024},
		{LinkEthernet, MTU4096, 0, 0},
		{LinkInfiniBand, MTU4096, MTU1024, MTU4096},
		{LinkInfiniBand, MTU2048, 0, MTU2048},
	} {
		require.Equal(t, c.want, pathMTU(c.link, c.port, c.ip), "%+v", c)
	}
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
	five := netpath.Netdev{Name: "eth5", Index: 5, Addrs: []netip.Addr{v4, netip.MustParseAddr("fe80::1")}}
	other := netpath.Netdev{Name: "eth5", Index: 5, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.7")}} // the number is another namespace's too
	on := func(n netpath.Netdev, a netip.Addr) int {
		e, ok := gidOn(all, netpath.Local{Netdev: n, Addr: a})
		if !ok {
			return -1
		}
		return int(e.Port)*100 + int(e.Index)
	}
	require.Equal(t, 102, on(five, v4))
	require.Equal(t, 102, on(five, netip.Addr{}), "the likeliest one")
	require.Equal(t, -1, on(other, netip.Addr{}))
	require.Equal(t, 103, on(netpath.Netdev{Index: 6, Addrs: []netip.Addr{v4}}, v4))
	require.Equal(t, 100, on(five, netip.MustParseAddr("fe80::1%eth5")))
	require.Equal(t, -1, on(netpath.Netdev{Index: 7, Addrs: []netip.Addr{v4}}, v4))
	require.Equal(t, -1, on(five, netip.MustParseAddr("10.0.0.2")))
	mac := append(net.HardwareAddr{0x80, 0, 0, 0x48}, ib[:]...)
	require.Equal(t, 200, on(netpath.Netdev{Index: 9, IPoIB: true, MAC: mac, Addrs: []netip.Addr{v4}}, v4), "by its link-layer address")
	require.Equal(t, -1, on(netpath.Netdev{Index: 9, IPoIB: true, MAC: mac[:6], Addrs: []netip.Addr{v4}}, v4))

	err := noGID("look up", "10.0.0.2 on mlx5_0", all[:2])
	require.ErrorIs(t, err, ErrNoGID)
	require.ErrorContains(t, err, "fe80::1")
	require.ErrorContains(t, err, "RoCE v1 10.0.0.1")
	require.ErrorContains(t, noGID("look up", "x", nil), "none at all")
}

func TestLookupWithoutDevices(t *testing.T) {
	if runtime.GOOS != "linux" {
		_, err := ResolvePath(context.Background(), netip.MustParseAddr("127.0.0.1"))
		require.ErrorIs(t, err, ErrUnsupported)
		return
	}
	// On every Linux: lo is up, and never RDMA's.
	_, err := LookupNetdev(t.Context(), "lo")
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
	_, err = LookupAddr(t.Context(), netip.MustParseAddr("127.0.0.1"))
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
	_, err = LookupNetdev(t.Context(), "no/such")
	require.ErrorIs(t, err, netpath.ErrNoNetdev)
}
