package hosts

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

const age = 4 * time.Second

// peers are those of a table, some of which are idle.
type peers struct {
	*Table
	of     map[uint32]wire.Addr
	idle   map[uint32]bool
	stamps map[uint32]uint64
	looks  int
}

func newPeers(most int, trusted bool) *peers {
	p := &peers{of: make(map[uint32]wire.Addr), idle: make(map[uint32]bool), stamps: make(map[uint32]uint64)}
	p.Table = New(Config{Secret: wire.Key{1, 2}, Trusted: trusted, MaxPeers: most, EvictAge: age, Born: 1000,
		Idle: func(slot uint32) bool {
			p.looks++
			return p.idle[slot]
		},
		Forget: func(slot uint32) {
			p.Remove(p.of[slot], p.stamps[slot])
			delete(p.of, slot)
			delete(p.idle, slot)
		}})
	return p
}

func addr(host, n int) (a wire.Addr) {
	binary.BigEndian.PutUint32(a.GID[12:], uint32(host))
	a.QPN, a.QKey = uint32(n), 77
	return a
}

// add reports whether a peer is admitted.
func (p *peers) add(a wire.Addr, now time.Duration) bool {
	slot, ok := p.Add(a, now)
	if ok {
		p.of[slot] = a
	}
	return ok
}

// In a full table one idle peer makes room, wherever it is. All are looked at for it seldom,
// however many strangers come.
func TestFullTable(t *testing.T) {
	const n = 1000
	p := newPeers(n, false)
	now := time.Second
	for i := range n {
		require.True(t, p.add(addr(i, 1), now))
	}
	require.Equal(t, n, p.Len())
	p.idle[900] = true
	require.True(t, p.add(addr(2000, 1), now))
	slot, ok := p.Slot(addr(2000, 1))
	require.True(t, ok)
	require.EqualValues(t, 900, slot)
	_, ok = p.Slot(addr(900, 1))
	require.False(t, ok)
	require.Equal(t, n, p.Len())

	p.idle[800] = true
	p.looks = 0
	for range 10 {
		require.False(t, p.add(addr(2001, 1), now), "all were looked at a moment ago")
	}
	require.Equal(t, 10*sweepFew, p.looks)
	now += age / sweepShare
	require.True(t, p.add(addr(2001, 1), now))
	require.Zero(t, testing.AllocsPerRun(10, func() { p.Add(addr(2002, 1), now) }))
}

// One host has its share of the peers, and another one in the place of one that is idle; with a
// key it may have all.
func TestShareOfAHost(t *testing.T) {
	for _, most := range []int{100, 1000} {
		p := newPeers(most, false)
		share := map[int]int{100: 16, 1000: 62}[most]
		require.Equal(t, share, p.Share())
		require.True(t, p.add(addr(2, 1), 0))
		p.idle[0] = true
		for i := range share {
			require.True(t, p.Admits(addr(1, i).GID, 0))
			require.True(t, p.add(addr(1, i), 0))
		}
		require.False(t, p.Admits(addr(1, share).GID, 0), "another host's is idle")
		require.True(t, p.Admits(addr(2, 2).GID, 0))
		p.idle[3] = true
		require.True(t, p.Admits(addr(1, share).GID, time.Second))
		require.Equal(t, share, p.Len())
		require.NotContains(t, p.of, uint32(3))
		require.True(t, p.add(addr(1, share), 0))
		require.Contains(t, p.of, uint32(3))
		require.False(t, p.Admits(addr(1, 0).GID, time.Second))
		p.Remove(addr(1, share), 0)
		require.True(t, p.Admits(addr(1, 0).GID, time.Second), "one is gone")

		p = newPeers(most, true)
		for i := range most {
			require.True(t, p.Admits(addr(1, i).GID, 0))
			require.True(t, p.add(addr(1, i), 0))
		}
	}
}

// A cookie is for an address, an epoch and a token, of one table, in its period and the next.
func TestCookies(t *testing.T) {
	p := newPeers(100, false)
	g := wire.Greeting{From: addr(1, 2), Epoch: 3, Token: 4, Stamp: 5}
	now := age/4 - 1
	g.Cookie = p.Cookie(&g, now)
	g.Stamp++
	for _, later := range []time.Duration{0, 1, age / 4} {
		require.True(t, p.Shows(&g, now+later))
	}
	require.False(t, p.Shows(&g, now+age/4+1))
	for _, change := range []func(g *wire.Greeting){
		func(g *wire.Greeting) { g.From.GID[15]++ },
		func(g *wire.Greeting) { g.From.QPN++ },
		func(g *wire.Greeting) { g.From.QKey++ },
		func(g *wire.Greeting) { g.Epoch++ },
		func(g *wire.Greeting) { g.Token++ },
		func(g *wire.Greeting) { g.Cookie++ },
	} {
		other := g
		change(&other)
		require.False(t, p.Shows(&other, now), "%+v", other)
	}
	require.False(t, New(Config{Secret: wire.Key{1, 3}, EvictAge: age}).Shows(&g, now))
}

// A greeting that is not later than one that was forgotten may be a replay, as one from before
// the table was made, or from a clock far ahead.
func TestFresh(t *testing.T) {
	p := newPeers(100, true)
	fresh := func(stamp uint64) bool { return p.Fresh(&wire.Greeting{Stamp: stamp}, 1_000_000) }
	require.False(t, fresh(1000))
	require.True(t, fresh(1001))
	require.False(t, fresh(1_000_000+uint64(time.Hour)))
	for i, stamp := range []uint64{2000, 1500} {
		require.True(t, p.add(addr(1, i), 0))
		p.Remove(addr(1, i), stamp)
		require.False(t, fresh(2000))
		require.True(t, fresh(2001))
	}
}

// A peer that remembers for a second may have forgotten this endpoint after half of it.
func TestForgets(t *testing.T) {
	h := Heard{At: time.Second, Raw: time.Minute}
	l := wire.Limits{Remember: 1_000_000}
	require.False(t, h.Forgets(time.Minute+time.Second/2-1, &l))
	require.True(t, h.Forgets(time.Minute+time.Second/2, &l))
}
