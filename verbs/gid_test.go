package verbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
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
		e, ok := c.q.choose(table)
		require.Equal(t, c.want >= 0, ok, c.name)
		if ok {
			require.EqualValues(t, c.want, e.Index, c.name)
		}
	}
}
