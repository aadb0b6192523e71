package handles

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cache is a cache with numbers for handles and a clock that stands still.
type cache struct {
	Cache[int]
	now   time.Duration
	asked []Way
	helps int
	made  int
}

func newCache(labels int) *cache {
	c := &cache{Cache: Cache[int]{Parked: 64}}
	c.Now = func() time.Duration { return c.now }
	c.Ask = func(to Way) { c.asked = append(c.asked, to) }
	c.Help = func() { c.helps++ }
	for i := range labels {
		c.Labels = append(c.Labels, uint32(i+1))
	}
	return c
}

// make makes the handle that was asked for first.
func (c *cache) make(ok bool) (unauthenticated bool) {
	to := c.asked[0]
	c.asked = c.asked[1:]
	c.made++
	return c.Made(to, c.made, ok)
}

// take returns the handle that a packet gets, which completes at once; 0 is none.
func (c *cache) take(to Way) int {
	h, _ := c.Take(0, to, false)
	c.Resume()
	if h == nil {
		return 0
	}
	h.Uses--
	return h.AH
}

func port(i int) (g GID) {
	binary.BigEndian.PutUint32(g[12:], uint32(i))
	return g
}

// Packets wait for a handle until it is made, or cannot be; only those of its way then.
func TestPacketsWait(t *testing.T) {
	c := newCache(1)
	ways := []Way{c.Way(port(1), 0), c.Way(port(2), 0)}
	for i := range uint32(4) {
		h, waits := c.Take(i, ways[i%2], false)
		require.Nil(t, h)
		require.True(t, waits)
	}
	require.Equal(t, ways, c.asked)
	require.False(t, c.make(false))
	require.Equal(t, []uint32{0, 2}, c.Lost(ways[0], func(i uint32) (Way, bool) { return ways[i%2], false }))
	require.Equal(t, 2, c.Waiting())
	c.make(true)
	require.Equal(t, []uint32{1, 3}, c.Resume())
	require.Zero(t, c.Waiting())
	require.Equal(t, 2, c.take(ways[1]))
	require.Zero(t, c.take(ways[0]))
	require.Equal(t, ways[:1], c.asked, "what could not be made is asked for again")

	c.Parked = 2
	for i := range uint32(3) {
		_, waits := c.Take(i, ways[0], false)
		require.Equal(t, i < 2, waits)
	}
}

// What waits for a handle that there was no room to ask for is asked for when another cannot be
// made.
func TestWhatWaitsIsAskedFor(t *testing.T) {
	c := newCache(1)
	way := func(i uint32) (Way, bool) { return c.Way(port(int(i)), 0), false }
	for i := range uint32(MaxMaking + 1) {
		to, _ := way(i)
		_, waits := c.Take(i, to, false)
		require.True(t, waits)
	}
	require.Len(t, c.asked, MaxMaking)
	first := c.asked[0]
	c.make(false)
	require.Equal(t, []uint32{0}, c.Lost(first, way))
	last, _ := way(MaxMaking)
	require.Equal(t, last, c.asked[MaxMaking-1])
}

// The handle that was found last is no longer found when it was forgotten, and only for its
// own way. One that is found counts as used.
func TestHandleThatWasForgotten(t *testing.T) {
	c := newCache(2)
	to, other := c.Way(port(1), 0), c.Way(port(1), 1)
	require.Zero(t, c.take(to))
	c.make(true)
	require.Equal(t, 1, c.take(to))
	require.Zero(t, c.take(other))
	c.make(false)
	require.Equal(t, 1, c.take(to))

	c.of[to].dirty = false
	require.Equal(t, 1, c.take(to))
	require.True(t, c.of[to].dirty)
	require.True(t, c.evict())
	require.Zero(t, c.take(to))
	require.Equal(t, []int{1}, c.Unused())
	c.make(true)
	c.Drop(to)
	c.Drop(other)
	require.Equal(t, []int{3}, c.Unused())
	require.Empty(t, c.hosts)
}

// Handles that were found last are found again, whichever share a place, and until they are made again or dropped.
func TestHandlesFoundLast(t *testing.T) {
	const paths = latestFound + 2 // the last two share places with the first ones
	c := newCache(paths)
	want := map[Way]int{}
	for path := range paths {
		to := c.Way(port(1), path)
		require.Zero(t, c.take(to))
		c.make(true)
		want[to] = c.made
	}
	all := func() {
		t.Helper()
		for range 2 {
			for path := range paths {
				to := c.Way(port(1), path)
				require.Equal(t, want[to], c.take(to), path)
			}
		}
	}
	all()
	c.Renew(port(1))
	all() // which asks for new ones, a few at a time
	for len(c.asked) > 0 {
		to := c.asked[0]
		c.make(true)
		want[to] = c.made
		all()
	}
	first, last := c.Way(port(1), 0), c.Way(port(1), latestFound)
	c.Drop(first)
	require.Zero(t, c.take(first))
	require.Equal(t, want[last], c.take(last))
	require.Len(t, c.Unused(), paths+1)
}

// Unauthenticated peers have few handles made at once, and none while more are made for others. Few of their
// packets wait.
func TestHandlesForUnauthenticatedPeers(t *testing.T) {
	c := newCache(1)
	asks := func(n int, unauthenticated bool) (more int) {
		before := len(c.asked)
		for range n {
			c.get(c.Way(port(len(c.of)), 0), unauthenticated)
		}
		return len(c.asked) - before
	}
	require.Equal(t, maxUnauthenticatedMaking, asks(10, true))
	_, coming := c.get(c.Way(port(1), 0), true)
	require.True(t, coming)
	for i := range uint32(2 * maxUnauthenticatedParked) {
		_, waits := c.Take(i, c.Way(port(1), 0), true)
		require.Equal(t, i < maxUnauthenticatedParked, waits)
	}
	require.Equal(t, MaxMaking-maxUnauthenticatedMaking, asks(2*MaxMaking, false))
	for len(c.asked) > maxUnauthenticatedMaking {
		c.make(true)
	}
	require.Zero(t, asks(1, true))
	require.Equal(t, 1, asks(1, false))

	c = newCache(1)
	to := c.Way(port(1), 0)
	c.get(to, true)
	require.True(t, c.make(false))

	// An unauthenticated peer may be the successor of an endpoint to which there is a handle.
	c.take(to)
	c.make(true)
	require.NotZero(t, c.take(to))
	for _, later := range []time.Duration{unauthenticatedAge - 1, unauthenticatedAge} {
		require.Empty(t, c.asked)
		c.now = later
		h, _ := c.get(to, false)
		require.NotNil(t, h)
		require.Empty(t, c.asked, "the peer is known")
		h, _ = c.get(to, true)
		require.NotNil(t, h)
	}
	require.Equal(t, []Way{to}, c.asked)
	require.True(t, c.of[to].renewing)

	c = newCache(1) // one that is made just then is new
	c.now = time.Hour
	for range 2 {
		c.get(to, true)
	}
	c.make(true)
	c.get(to, true)
	require.Empty(t, c.asked)

	// For which there was no room, nothing waits.
	c = newCache(1)
	for asks(1, true) > 0 { // until there is no room
	}
	_, waits := c.Take(0, c.Way(port(1000), 0), true)
	require.False(t, waits)
}

// What waits long behind others is made beside them.
func TestOthersHelp(t *testing.T) {
	c := newCache(1)
	slow, behind := c.Way(port(1), 0), c.Way(port(2), 0)
	c.take(slow)
	c.now = helpAfter - 1
	c.take(behind)
	require.Zero(t, c.helps)
	c.now = helpAfter
	c.take(behind)
	require.Equal(t, 1, c.helps)
	c.take(behind)
	require.Equal(t, 1, c.helps, "so soon")
	c.now += helpAfter - 1
	c.make(true)
	c.now++
	c.take(behind)
	require.Equal(t, 1, c.helps, "one was made")
}

// Help is for what takes long, not for what is asked for late; also while a handle is renewed.
func TestHelpIsForWhatTakesLong(t *testing.T) {
	c := newCache(1)
	to := c.Way(port(1), 0)
	c.now = time.Hour
	c.take(to)
	require.Zero(t, c.helps)
	c.make(true)
	c.now += time.Hour
	c.Renew(to.To)
	c.take(to)
	c.take(to)
	require.Zero(t, c.helps)
	c.now += helpAfter
	c.take(to)
	require.Equal(t, 1, c.helps)
	c.Help = nil
	c.now += helpAfter
	c.take(to)
}

// Handles are made again a few at a time, and those that are in use make no room for others.
func TestHandlesInUse(t *testing.T) {
	c := newCache(1)
	way := func(i int) Way { return c.Way(port(i), 0) }
	for i := range MaxHandles {
		c.take(way(i))
		c.make(true)
		h, _ := c.Take(0, way(i), false)
		require.NotNil(t, h)
	}
	require.Zero(t, c.take(way(MaxHandles)))
	require.Empty(t, c.asked)
	c.of[way(7)].Uses--
	require.Zero(t, c.take(way(MaxHandles)))
	require.Equal(t, []Way{way(MaxHandles)}, c.asked)
	require.Equal(t, []int{8}, c.Unused())

	for i := range 10 {
		c.Renew(way(i).To)
		c.take(way(i))
	}
	require.Len(t, c.asked, maxUnauthenticatedMaking)
}

// A handle that could not be made when it was dropped is nothing to close.
func TestDroppedAndNotMade(t *testing.T) {
	c := newCache(1)
	to := c.Way(port(1), 0)
	c.take(to)
	c.make(true)
	c.Renew(to.To)
	c.take(to)
	c.DropAll()
	require.Equal(t, []int{1}, c.Unused())
	c.make(false)
	require.Empty(t, c.Unused())
}

// A handle that is renewed is used meanwhile, and closed when no send uses it any more. When
// the host has changed, none of the old ones is used.
func TestHandlesThatAreReplaced(t *testing.T) {
	c := newCache(1)
	to := c.Way(port(1), 0)
	c.take(to)
	c.make(true)
	old, _ := c.Take(0, to, false)
	c.Renew(to.To)
	require.Empty(t, c.asked, "it is not used")
	for range 2 {
		require.Equal(t, 1, c.take(to))
		require.Equal(t, []Way{to}, c.asked)
	}
	c.make(true)
	require.Equal(t, 2, c.take(to))
	require.Empty(t, c.Unused())
	old.Uses--
	require.Equal(t, []int{1}, c.Unused())

	c.Renew(to.To)
	c.take(to)
	c.make(false)
	require.Equal(t, 2, c.take(to), "the old one may be as good")
	require.Empty(t, c.asked)

	c.Renew(to.To)
	c.take(to)
	life := c.Life()
	c.DropAll()
	require.NotEqual(t, life, c.Life())
	require.Equal(t, []int{2}, c.Unused())
	c.make(true)
	require.Equal(t, []int{4}, c.Unused(), "it was dropped while it was renewed")
	require.Zero(t, c.take(to))
	c.All(func(Way, int) { t.Error("none is made") })
	c.DropAll()
	c.Discard(7)
	c.make(true)
	require.Equal(t, 5, c.take(to), "it was being made")
	var all []int
	c.All(func(_ Way, ah int) { all = append(all, ah) })
	require.ElementsMatch(t, []int{5, 7}, all)
}

// A way that is dropped while its handle is made again is asked for twice. Of the two handles the later one is used,
// and the other one is closed.
func TestHandleAskedForTwice(t *testing.T) {
	c := newCache(1)
	to := c.Way(port(1), 0)
	c.take(to)
	c.make(true)
	c.Renew(to.To)
	require.Equal(t, 1, c.take(to))
	c.Drop(to)
	require.Zero(t, c.take(to))
	require.Len(t, c.asked, 2)
	c.make(true)
	require.Equal(t, 2, c.take(to))
	c.make(true)
	require.Equal(t, []int{1, 2}, c.Unused())
	require.Equal(t, 3, c.take(to))
}

// Packets to as many hosts as the handles are for have one nearly always: with more hosts there
// are fewer ways to each.
func TestHandlesOfManyHosts(t *testing.T) {
	for _, hosts := range []int{1000, 2048, 4000, 12_000} {
		c := newCache(8)
		rng := rand.New(rand.NewPCG(1, 2))
		waited, takes := 0, 20*hosts*8
		for i := range takes {
			if c.take(c.Way(port(rng.IntN(hosts)), rng.IntN(8))) == 0 {
				c.make(true)
				if i >= takes/2 {
					waited++
				}
			}
			c.Unused()
		}
		share := float64(waited) / float64(takes/2)
		t.Logf("%d hosts: %d ways to each, %.4f of the packets wait for a handle", hosts, c.Share(), share)
		require.Less(t, share, 0.01)
		require.LessOrEqual(t, len(c.of), MaxHandles)
		total := 0
		for _, n := range c.hosts {
			total += n
		}
		require.Len(t, c.of, total)
	}
}
