package verbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
)

// Ethernet goes by GID. InfiniBand goes by LID, and has a route header only
// where the subnet is another one or the program asks for it.
func TestPathToPeer(t *testing.T) {
	gid := func(s string) GID { return GIDOf(netip.MustParseAddr(s)) }
	roce := GIDEntry{Type: GIDRoCEv2, Port: 1, Index: 3, GID: gid("10.77.0.1")}
	ib := GIDEntry{Type: GIDInfiniBand, Port: 2, Index: 0, GID: gid("fe80::2:c903:1")}
	cfg := ConnectConfig{TrafficClass: 32, FlowLabel: 5, SrcPathBits: 1, StaticRate: 2}
	global := cfg
	global.Global = true
	for _, c := range []struct {
		name   string
		local  GIDEntry
		remote Endpoint
		cfg    ConnectConfig
		want   AHAttr
	}{
		{"RoCE", roce, Endpoint{GID: gid("10.77.0.2"), LID: 9}, cfg,
			AHAttr{GID: gid("10.77.0.2"), SGIDIndex: 3, Port: 1, TrafficClass: 32, FlowLabel: 5}},
		{"InfiniBand", ib, Endpoint{GID: gid("fe80::2:c903:7"), LID: 9}, cfg,
			AHAttr{DLID: 9, Port: 2, SrcPathBits: 1, StaticRate: 2}},
		{"EFA", ib, Endpoint{GID: gid("fe80::2:c903:7")}, ConnectConfig{}, AHAttr{GID: gid("fe80::2:c903:7"), Port: 2}},
		{"InfiniBand without GID", ib, Endpoint{LID: 9}, global,
			AHAttr{DLID: 9, Port: 2, SrcPathBits: 1, StaticRate: 2}},
		{"InfiniBand, another subnet", ib, Endpoint{GID: gid("fec0:0:0:1::7"), LID: 9}, cfg,
			AHAttr{GID: gid("fec0:0:0:1::7"), DLID: 9, Port: 2, SrcPathBits: 1, StaticRate: 2, TrafficClass: 32, FlowLabel: 5}},
		{"InfiniBand, asked for", ib, Endpoint{GID: gid("fe80::2:c903:7"), LID: 9}, global,
			AHAttr{GID: gid("fe80::2:c903:7"), DLID: 9, Port: 2, SrcPathBits: 1, StaticRate: 2, TrafficClass: 32, FlowLabel: 5}},
		{"the peer's service level", ib, Endpoint{LID: 9, SL: 4}, ConnectConfig{}, AHAttr{DLID: 9, Port: 2, SL: 4}},
		{"one's own", ib, Endpoint{LID: 9, SL: 4}, ConnectConfig{ServiceLevel: 6}, AHAttr{DLID: 9, Port: 2, SL: 6}},
	} {
		got := c.cfg.path(c.local, c.remote)
		require.Equal(t, c.want, got, c.name)
		raw := got.raw()
		require.Equal(t, c.want.GID != GID{}, raw.IsGlobal == 1, "%s: route header", c.name)
	}

	require.ErrorContains(t, reachable(LinkInfiniBand, Endpoint{GID: gid("10.77.0.2")}), "no LID")
	require.ErrorIs(t, reachable(LinkInfiniBand, Endpoint{}), ErrAttributes)
	require.NoError(t, reachable(LinkInfiniBand, Endpoint{LID: 9}))
	for _, link := range []LinkLayer{LinkEthernet, LinkUnspecified} {
		require.ErrorIs(t, reachable(link, Endpoint{LID: 9}), ErrNoGID)
		require.NoError(t, reachable(link, Endpoint{GID: gid("fe80::7")}))
	}
}

func TestVectorsAreSpread(t *testing.T) {
	d := wrapDevice("none", cgo.Context(0), DeviceAttr{CompletionVecs: 3})
	var got []int
	for range 5 {
		got = append(got, d.NextVector())
	}
	require.Equal(t, []int{0, 1, 2, 0, 1}, got)
	require.Zero(t, wrapDevice("none", cgo.Context(0), DeviceAttr{}).NextVector())
}

// The page offsets of a dmabuf and of its address agree.
func TestDMABufAddress(t *testing.T) {
	for _, offset := range []uint64{0, 4096, 100, 4096 + 100, 1<<32 + 65536 + 7} {
		for _, page := range []uint64{4 << 10, 64 << 10, 2 << 20} {
			require.Equal(t, offset%page, dmabufAddr(offset)%page, "offset %d, pages of %d", offset, page)
		}
	}
}
