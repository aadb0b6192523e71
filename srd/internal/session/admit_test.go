package session

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// crowd is a machine with peers that are idle only if the test says so.
type crowd struct {
	Sessions
	places []*Peer
	idles  map[uint32]bool // by slot
	looks  int
}

func newCrowd(most int, key *wire.Key) *crowd {
	c := &crowd{idles: make(map[uint32]bool)}
	cfg := Config{MaxPeers: most, Key: key, EvictAge: 4 * second, Wall: 1000}
	cfg.SetDefaults()
	c.Init(cfg, Hooks{
		Make: func(p Peer) *Peer {
			if int(p.Slot) == len(c.places) {
				c.places = append(c.places, new(Peer))
			}
			*c.places[p.Slot] = p
			return c.places[p.Slot]
		},
		Unsettled: func(p *Peer) bool {
			c.looks++
			return !c.idles[p.Slot]
		},
		Forget: func(p *Peer) { delete(c.idles, p.Slot) },
	})
	c.Now = -5 * second // all peers of then are silent for long
	return c
}

func member(host, n int) (a wire.Addr) {
	binary.BigEndian.PutUint32(a.GID[12:], uint32(host))
	a.QPN, a.QKey = uint32(n), 77
	return a
}

func (c *crowd) admit(host, n int) bool {
	a := member(host, n)
	return c.admits(&a.GID)
}

// In a full table one idle peer makes room, wherever it is. All are looked at for it seldom,
// however many unauthenticated peers come.
func TestManyPeers(t *testing.T) {
	const n = 1000
	c := newCrowd(n, nil)
	for i := range n {
		require.NotNil(t, c.Find(member(i, 1)))
	}
	require.Equal(t, n, c.Known())
	c.Now = second
	c.idles[900] = true
	require.EqualValues(t, 900, c.Find(member(2000, 1)).Slot)
	require.Nil(t, c.Lookup(member(900, 1)))
	require.Equal(t, n, c.Known())

	c.idles[800] = true
	c.looks = 0
	for range 10 {
		require.Nil(t, c.Find(member(2001, 1)), "all were looked at a moment ago")
	}
	require.InDelta(t, 10*sweepFew, c.looks, 10)
	c.Now += c.cfg.EvictAge / sweepShare
	require.NotNil(t, c.Find(member(2001, 1)))
	require.Zero(t, testing.AllocsPerRun(10, func() { c.Find(member(2002, 1)) }))
}

// One host has its share of the peers, and another one in the place of one that is idle; with a
// key it may have all.
func TestShareOfAHost(t *testing.T) {
	for most, share := range map[int]int{100: 16, 1000: 62} {
		c := newCrowd(most, nil)
		require.Equal(t, share, c.HostShare())
		c.Find(member(2, 1))
		c.idles[0] = true
		for i := range share {
			require.True(t, c.admit(1, i))
			require.NotNil(t, c.Find(member(1, i)))
		}
		c.Now = second
		require.False(t, c.admit(1, share), "another host's is idle")
		require.True(t, c.admit(2, 2))
		c.idles[3] = true
		c.Now += c.cfg.EvictAge
		require.True(t, c.admit(1, share))
		require.Equal(t, share, c.Known())
		require.EqualValues(t, 3, c.Find(member(1, share)).Slot)
		require.False(t, c.admit(1, 0))
		c.Forget(c.Lookup(member(1, share)))
		require.True(t, c.admit(1, share), "one is gone")

		c = newCrowd(most, key)
		for i := range most {
			require.True(t, c.admit(1, i))
			require.NotNil(t, c.Find(member(1, i)))
		}
	}
}

// Slots that are free are taken before an idle peer makes room, and are no idle peers themselves.
func TestFreeSlots(t *testing.T) {
	const most, share = 100, 16
	c := newCrowd(most, nil)
	for i := range most {
		require.NotNil(t, c.Find(member(i/share, i)))
	}
	c.Now = second
	mine, other := c.Lookup(member(0, 0)), c.Lookup(member(1, share))
	c.Forget(mine)
	c.Forget(other)
	c.idles[1] = true
	require.Same(t, other, c.Find(member(0, 1000)))
	require.EqualValues(t, 2, c.Stats.Forgotten, "that was free")
	c.idles = map[uint32]bool{mine.Slot: true}
	require.False(t, c.admit(0, 1001))
	require.EqualValues(t, 2, c.Stats.Forgotten)
}

// A peer that begins anew takes no room from others of its host.
func TestPeerThatBeginsAnew(t *testing.T) {
	c := newCrowd(100, nil)
	for i := range c.HostShare() {
		c.Find(member(1, i))
	}
	c.Now = second
	c.idles[3] = true
	p := c.Lookup(member(1, 5))
	c.hooks.End = func(*Peer, uint64, *wire.Limits) {}
	c.hooks.Begin, c.hooks.Establish = func(*Peer) {}, func(*Peer) {}
	got, begun := c.adopt(p, &wire.Greeting{From: p.Addr, Epoch: 7, Token: 8})
	require.True(t, begun)
	require.Same(t, p, got)
	require.Zero(t, c.Stats.Forgotten)

	c.idles[3] = false // another peer of the host has no room
	a := member(1, 1000)
	got, begun = c.adopt(nil, &wire.Greeting{From: a, Epoch: 7, Token: 8})
	require.False(t, begun)
	require.Nil(t, got)
	require.Nil(t, c.Lookup(a))
	require.EqualValues(t, 1, c.Stats.Unanswered)
}

// A cookie is for an address, an epoch and a token, of one table, in its period and the next.
func TestCookies(t *testing.T) {
	c := newCrowd(100, nil)
	g := wire.Greeting{From: member(1, 2), Epoch: 3, Token: 4, Stamp: 5}
	period := c.cfg.EvictAge / 4
	now := 2*period - 1
	c.Now = now
	g.Cookie = c.Cookie(&g)
	g.Stamp++
	for _, later := range []time.Duration{0, 1, period} {
		c.Now = now + later
		require.True(t, c.shows(&g))
	}
	c.Now = now + period + 1
	require.False(t, c.shows(&g))
	c.Now = now
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
		require.False(t, c.shows(&other), "%+v", other)
	}
	c.secret[0]++
	require.False(t, c.shows(&g))
}

// A greeting that is not later than one that was forgotten may be a replay, as one from before
// the table was made, or from a clock far ahead.
func TestFresh(t *testing.T) {
	c := newCrowd(100, key)
	fresh := func(stamp uint64) bool { return c.fresh(&wire.Greeting{Stamp: stamp}) }
	require.False(t, fresh(1000))
	require.True(t, fresh(1001))
	require.True(t, fresh(999+uint64(time.Hour)))
	require.False(t, fresh(1000+uint64(time.Hour)))
	for i, stamp := range []uint64{2000, 1500} {
		p := c.Find(member(1, i))
		p.Stamp = stamp
		c.Forget(p)
		require.False(t, fresh(2000))
		require.True(t, fresh(2001))
	}
}

// A peer that remembers for a second may have forgotten this endpoint after half of it.
func TestForgets(t *testing.T) {
	c := newCrowd(100, nil)
	p := &Peer{Heard: Heard{Raw: time.Minute}, Limits: wire.Limits{Remember: 1_000_000}}
	c.raw = time.Minute + second/2 - 1
	require.False(t, c.Forgets(p))
	c.raw++
	require.True(t, c.Forgets(p))
}
