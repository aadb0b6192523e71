package pending

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func small(total, each int) *table[string] {
	return &table[string]{total: total, each: each, abreast: each, sources: make(map[string][]*entry)}
}

func one() *entry { return &entry{turn: make(chan struct{})} }

// Of each source the oldest have their turn, and the next one has it when one of them goes.
func TestTurns(t *testing.T) {
	tab := small(6, 5)
	tab.abreast = 2
	begun := func(e *entry) bool {
		select {
		case <-e.turn:
			return true
		default:
			return false
		}
	}
	var all [6]*entry
	expect := func(turns ...bool) {
		t.Helper()
		for i, turn := range turns {
			require.Equal(t, turn, begun(all[i]), i)
		}
	}
	for i := range 5 {
		all[i] = one()
		require.Nil(t, tab.admit("flood", all[i]))
	}
	expect(true, true, false, false, false)
	other := one()
	require.Nil(t, tab.admit("client", other))
	require.True(t, begun(other))
	tab.remove("flood", all[2]) // one that waits
	expect(true, true, false, false, false)
	tab.remove("flood", all[1])
	expect(true, true, false, true, false)
	tab.remove("flood", all[0])
	expect(true, true, false, true, true)
	tab.remove("flood", all[3])
	all[5] = one()
	require.Nil(t, tab.admit("flood", all[5]))
	require.True(t, begun(all[5]))
	tab.remove("flood", all[5])
	tab.remove("flood", all[4])
	tab.remove("client", other)
	require.Zero(t, tab.n)
}

// One source has at most its part, and loses its own oldest.
func TestSourceLosesItsOldest(t *testing.T) {
	tab := small(10, 3)
	var all []*entry
	for i := range 8 {
		all = append(all, one())
		evicted := tab.admit("flood", all[i])
		if i < 3 {
			require.Nil(t, evicted)
		} else {
			require.Same(t, all[i-3], evicted)
		}
		require.LessOrEqual(t, tab.n, 3)
	}
	require.Nil(t, tab.admit("client", one()))
	for i, e := range all {
		require.Equal(t, i < 5, e.evicted)
	}
	require.Equal(t, 4, tab.n)
	tab.remove("flood", all[0]) // it has lost its place
	require.Equal(t, 4, tab.n)
	for range 2 {
		tab.remove("flood", all[6])
		require.Equal(t, 3, tab.n)
	}
}

// When all places are taken, the source that has most loses its oldest, not the one that
// comes.
func TestLargestSourceMakesRoom(t *testing.T) {
	tab := small(6, 4)
	first, old, flood := one(), one(), [3]*entry{one(), one(), one()}
	for s, e := range map[string]*entry{"a": first, "b": old} {
		require.Nil(t, tab.admit(s, e))
	}
	for _, e := range flood {
		require.Nil(t, tab.admit("flood", e))
	}
	require.Nil(t, tab.admit("c", one()))
	require.Same(t, flood[0], tab.admit("d", one()))
	require.Same(t, flood[1], tab.admit("e", one()))
	require.Equal(t, 6, tab.n)
}

// Among sources that have as many, the oldest connection of all goes.
func TestOldestOfEqualSources(t *testing.T) {
	tab := small(3, 3)
	all := make([]*entry, 9)
	for i := range all {
		all[i] = one()
		evicted := tab.admit(string(rune('a'+i)), all[i])
		if i < 3 {
			require.Nil(t, evicted)
		} else {
			require.Same(t, all[i-3], evicted)
		}
	}
	require.Len(t, tab.sources, 3, "nothing is kept of sources that are gone")
}

func TestSource(t *testing.T) {
	at := func(s string) netip.Prefix {
		return Source(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(s), 7)))
	}
	require.Equal(t, at("10.0.0.1"), at("::ffff:10.0.0.1"))
	require.NotEqual(t, at("10.0.0.1"), at("10.0.0.2"))
	require.Equal(t, at("fd00::1"), at("fd00::2:3:4:5"))
	require.NotEqual(t, at("fd00::1"), at("fd00:0:0:1::1"))
	require.Equal(t, at("fe80::1%eth0"), at("fe80::1"))
	require.Equal(t, Source(nil), Source(&net.UnixAddr{Name: "x"}))
	require.Equal(t, netip.Prefix{}, Source(&net.TCPAddr{}))
}

// The driver tells the connection that loses its place, once, and leave says so.
func TestConnsEvict(t *testing.T) {
	c := New()
	c.table.each = 2
	evicted := make([]int, 3)
	var leave []func() error
	for i := range evicted {
		leave = append(leave, c.Admit(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, func() { evicted[i]++ }))
	}
	require.Equal(t, []int{1, 0, 0}, evicted)
	for range 2 {
		require.Equal(t, ErrCrowded, leave[0]())
		require.NoError(t, leave[1]())
		require.NoError(t, leave[2]())
	}
	require.Zero(t, c.Len())
	require.Empty(t, c.table.sources)
}
