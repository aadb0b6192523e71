package evict

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/evict/lrutest"
	"github.com/goverbs/goverbs/internal/testseed"
)

// check sees that each item is in one list, that links and counters agree, and that no list below low has items.
func (q *Queue) check(t testing.TB) {
	t.Helper()
	seen, bytes, young := map[uint32]bool{}, 0, 0
	for list := -1; list < lists; list++ {
		head := uint32(0)
		if list >= 0 {
			head = q.head(list)
		}
		for prev, i := head, q.nodes[head].next; ; prev, i = i, q.nodes[i].next {
			require.Equal(t, prev, q.nodes[i].prev, "item %d", i)
			if i == head {
				break
			}
			n := &q.nodes[i]
			require.False(t, seen[i], "item %d is listed twice", i)
			require.NotZero(t, n.size)
			require.Equal(t, list < 0, n.young)
			require.False(t, list >= 0 && list < q.low, "item %d is below the lowest list", i)
			seen[i] = true
			if bytes += int(n.size); n.young {
				young += int(n.size)
			}
		}
	}
	require.Equal(t, []int{len(seen), bytes, young}, []int{q.len, q.bytes, q.young})
	for i := heads; i < len(q.nodes); i++ {
		require.Equal(t, seen[uint32(i)], q.nodes[i].size > 0, "item %d", i)
	}
}

// No item of the main part is evicted while there is an older and colder one of its size. Items have blocks of the
// sketch of their own, so that counts are exact but for the rounding of halves.
func TestColderAndOlderGoesFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	q := New()
	q.sketch.reserve(perBlock * 1024)
	type item struct{ at, size int }
	items, bytes, evicted := map[uint32]item{}, 0, 0
	for now := range 60_000 {
		id := uint32(math.Pow(1024, rng.Float64())) - 1
		q.Access(uint64(id)<<32, 1)
		if _, ok := items[id]; !ok {
			size := 64 << rng.IntN(3)
			q.Insert(id, uint64(id)<<32, size)
			items[id] = item{now, size}
			bytes += size
		}
		if rng.IntN(500) == 0 {
			if it, ok := items[id]; ok {
				q.Remove(id)
				bytes -= it.size
				delete(items, id)
			}
		}
		for bytes > 20_000 {
			got, ok := q.Evict()
			require.True(t, ok)
			gone := items[got]
			count := q.sketch.count(uint64(got) << 32)
			for other, it := range items {
				if n := q.nodes[other+heads]; !n.young && it.size == gone.size && it.at < gone.at {
					require.LessOrEqual(t, count, 2*q.sketch.count(uint64(other)<<32)+3, "%d goes before %d", got, other)
				}
			}
			delete(items, got)
			bytes -= gone.size
			evicted++
		}
		if now%500 == 0 {
			q.check(t)
		}
		require.Equal(t, len(items), q.Len())
	}
	require.Greater(t, evicted, 1000)
	for range items {
		_, ok := q.Evict()
		require.True(t, ok)
	}
	q.check(t)
	_, ok := q.Evict()
	require.False(t, ok)
}

// A count is no lower than the accesses of late, halves with each round, and survives the sketch's growth.
func TestCounts(t *testing.T) {
	s := sketch{blocks: make([]block, 16)}
	const f = 0x1234_5678_9abc_def0
	s.add(f, 20)
	require.Equal(t, 20, s.count(f))
	s.reserve(perBlock*16 + 1)
	require.Len(t, s.blocks, 32)
	require.Equal(t, 20, s.count(f))
	for want := s.count(f) / 2; want > 0; want /= 2 {
		rounds := 0
		for rounds == 0 { // by accesses to another block
			rounds += s.add(f^1<<32, 1)
		}
		require.InDelta(t, want, s.count(f), 1)
	}
}

// A count is the same for a counter that the hand has halved in this round, and for one that it has yet to reach.
func TestCountsWithinARound(t *testing.T) {
	s := sketch{blocks: make([]block, 16)}
	const first, last = 0, 15 << 32
	s.add(first, 8)
	s.add(last, 8)
	require.Equal(t, []int{8, 8}, []int{s.count(first), s.count(last)})
	for s.hand == 0 {
		s.add(5<<32, 1)
	}
	require.Equal(t, []int{8, 8}, []int{s.count(first), s.count(last)})
}

// The hand moves with the last access of a block's share.
func TestHandMoves(t *testing.T) {
	s := sketch{blocks: make([]block, 16)}
	s.add(0, window*perBlock-1)
	require.Zero(t, s.hand)
	s.add(0, 1)
	require.Equal(t, 1, s.hand)
}

// Of items that are alike the oldest goes first, and of items with as many accesses the longest.
func TestOldestAndLongestGoFirst(t *testing.T) {
	q := New()
	for i := range uint32(20) {
		q.Insert(i, uint64(i)<<32, 100)
	}
	for i := range uint32(20) {
		got, ok := q.Evict()
		require.True(t, ok)
		require.Equal(t, i, got)
	}
	for i, size := range []int{100, 10_000, 1000} {
		q.Access(uint64(i)<<32, 4)
		q.Insert(uint32(i), uint64(i)<<32, size)
	}
	for _, want := range []uint32{1, 2, 0} {
		got, ok := q.Evict()
		require.True(t, ok)
		require.Equal(t, want, got)
	}
}

// No item is lost when lists become one by ageing.
func TestAgeKeepsAll(t *testing.T) {
	q := New()
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	for i := range uint32(1000) {
		f := rng.Uint64()
		q.Access(f, rng.IntN(4))
		q.Insert(i, f, 1<<(20+rng.IntN(9)))
	}
	for range 100 { // the others leave the window
		_, ok := q.Evict()
		require.True(t, ok)
	}
	for range 30 {
		q.age()
		q.check(t)
	}
	require.Equal(t, 900, q.Len())
}

// An item that is not in the queue is removed without effect.
func TestRemoveTwice(t *testing.T) {
	q := New()
	q.Insert(0, 1, 10)
	q.Insert(1, 2, 20)
	q.Remove(0)
	q.Remove(0)
	q.check(t)
	require.Equal(t, 1, q.Len())
}

// The sketch grows with the first item for which there is no block.
func TestSketchGrows(t *testing.T) {
	s := sketch{blocks: make([]block, 16)}
	s.reserve(16 * perBlock)
	require.Len(t, s.blocks, 16)
	s.reserve(16*perBlock + 1)
	require.Len(t, s.blocks, 32)
}

// What is used stays while ten times as much goes by once.
func TestScan(t *testing.T) {
	c := newCache(1000)
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	hot := make([]uint64, 500)
	for i := range hot {
		hot[i] = rng.Uint64()
	}
	for range 30 {
		for _, f := range hot {
			c.get(f, 1)
		}
		for range 400 {
			c.get(rng.Uint64(), 1)
		}
	}
	for range 10_000 {
		c.get(rng.Uint64(), 1)
	}
	hits := 0
	for _, f := range hot {
		if c.get(f, 1) {
			hits++
		}
	}
	require.Greater(t, hits, 350)
}

// Items that are not used any more go, however often they were used.
func TestFormerlyHotItemsGo(t *testing.T) {
	c := newCache(1000)
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	hits := 0
	for range 2 { // sets of items, one after the other
		set := make([]uint64, 900)
		for i := range set {
			set[i] = rng.Uint64()
		}
		for range 12 * window {
			hits = 0
			for _, f := range set {
				if c.get(f, 1) {
					hits++
				}
			}
		}
	}
	require.Greater(t, hits, 850)
}

// cache stores items that miss.
type cache struct {
	q           *Queue
	room, bytes int
	by          map[uint64]uint32
	items       []stored
	free        []uint32
}

type stored struct {
	fingerprint uint64
	size        int
}

func newCache(room int) *cache { return &cache{q: New(), room: room, by: map[uint64]uint32{}} }

func (c *cache) get(f uint64, size int) bool {
	c.q.Access(f, 1)
	if _, ok := c.by[f]; ok {
		return true
	}
	for c.bytes+size > c.room {
		id, _ := c.q.Evict()
		delete(c.by, c.items[id].fingerprint)
		c.bytes -= c.items[id].size
		c.free = append(c.free, id)
	}
	if len(c.free) == 0 {
		c.free = append(c.free, uint32(len(c.items)))
		c.items = append(c.items, stored{})
	}
	id := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.items[id], c.by[f] = stored{f, size}, id
	c.q.Insert(id, f, size)
	c.bytes += size
	return false
}

// With nine tenths of the memory the hit rate is at least that of LRU with all of it, within a point, whatever the
// sizes, and comes back soon after all keys have changed places.
func TestHitRate(t *testing.T) {
	for _, c := range []struct{ room, longest, keys, passes int }{
		{8 << 20, 100_000, 7500, 5}, {8 << 20, 900_000, 2500, 5}, {8 << 20, 10_000, 15_000, 5},
		{16 << 20, 100_000, 10_000, 5}, {32 << 20, 900_000, 3750, 5}, {8 << 20, 1000, 30_000, 5}, {8 << 20, 110, 200_000, 2},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		keys := make([]stored, c.keys)
		for i := range keys {
			keys[i] = stored{rng.Uint64(), int(100*math.Pow(float64(c.longest)/100, rng.Float64())) + 64}
		}
		z := rand.NewZipf(rng, 1.05, 10, uint64(c.keys-1))
		this, plain := newCache(c.room*9/10), lrutest.New(c.room)
		shares := func(n int) (float64, float64) {
			hits, others := 0, 0
			for range n {
				k := keys[z.Uint64()]
				if this.get(k.fingerprint, k.size) {
					hits++
				}
				if plain.Get(k.fingerprint, k.size) {
					others++
				}
			}
			return float64(hits) / float64(n), float64(others) / float64(n)
		}
		shares(c.keys * c.passes / 2)
		steady, other := shares(c.keys * c.passes / 2)
		t.Logf("%+v: %.3f, LRU %.3f", c, steady, other)
		require.Greater(t, steady, other-0.01)
		rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		shares(c.keys)
		again, _ := shares(c.keys)
		require.Greater(t, again, 0.9*steady, "after a change")
	}
}

func BenchmarkAccess(b *testing.B) {
	q := New()
	rng := rand.New(rand.NewPCG(1, 2))
	f := make([]uint64, 1<<16)
	for i := range f {
		f[i] = rng.Uint64()
		q.Insert(uint32(i), f[i], 100)
	}
	for i := 0; b.Loop(); i++ {
		q.Access(f[i*40503&(1<<16-1)], 1)
	}
}
