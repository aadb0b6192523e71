package evict

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// cache of items of one byte, that are fetched when they miss.
type cache struct {
	q        *Queue
	room     int
	by       map[uint64]uint32
	names    map[uint32]uint64
	free     []uint32
	hit, all int
}

func newCache(room int) *cache {
	c := &cache{q: New(), room: room, by: map[uint64]uint32{}, names: map[uint32]uint64{}}
	for i := range uint32(room) {
		c.free = append(c.free, i)
	}
	return c
}

func (c *cache) get(f uint64) bool {
	c.all++
	if id, ok := c.by[f]; ok {
		c.hit++
		c.q.Access(id)
		return true
	}
	if len(c.free) == 0 {
		id, _ := c.q.Evict()
		delete(c.by, c.names[id])
		c.free = append(c.free, id)
	}
	id := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.by[f], c.names[id] = id, f
	c.q.Insert(id, f, 1)
	return false
}

// What is used stays while ten times as much goes by once.
func TestScan(t *testing.T) {
	c := newCache(1000)
	next := uint64(1 << 32)
	for range 30 {
		for f := range uint64(500) {
			c.get(f)
		}
		for range 400 {
			c.get(next)
			next++
		}
	}
	for range 10000 {
		c.get(next)
		next++
	}
	c.hit, c.all = 0, 0
	for f := range uint64(500) {
		c.get(f)
	}
	require.Greater(t, c.hit, 450)
}

// A zipf load hits more often than with plain FIFO.
func TestZipf(t *testing.T) {
	z := rand.NewZipf(rand.New(rand.NewPCG(testseed.New(t), 0)), 1.01, 1, 100000)
	c := newCache(2000)
	fifo, in, hits := make([]uint64, 2000), map[uint64]bool{}, 0
	const n = 60000
	for i := range n {
		f := z.Uint64()
		c.get(f)
		if in[f] {
			hits++
		} else {
			delete(in, fifo[i%2000])
			fifo[i%2000], in[f] = f, true
		}
	}
	t.Logf("hits: %.3f, FIFO %.3f", float64(c.hit)/n, float64(hits)/n)
	require.Greater(t, float64(c.hit), 1.05*float64(hits))
}

// What comes back soon after it was forgotten goes to the main queue.
func TestGhost(t *testing.T) {
	q := New()
	q.Insert(0, 100, 1)
	id, ok := q.Evict()
	require.True(t, ok)
	require.Equal(t, uint32(0), id)
	q.Insert(0, 100, 1)
	require.Equal(t, 1, q.main.n)
	q.Insert(1, 101, 1)
	require.Equal(t, 1, q.small.n)

	var g ghost
	for f := range uint64(1000) {
		g.add(f, 100)
		g.add(f%7, 100)
	}
	require.LessOrEqual(t, len(g.seen), 100)
	require.Less(t, len(g.fifo), 1000)
	require.True(t, g.take(999))
	require.False(t, g.take(999))
	require.False(t, g.take(500))
}

func TestRemove(t *testing.T) {
	q := New()
	for i := range uint32(5) {
		q.Insert(i, uint64(i), 10)
	}
	q.Resize(3, 100)
	require.Equal(t, 140, q.small.bytes)
	q.Access(1)
	for _, i := range []uint32{2, 0, 4, 3} {
		q.Remove(i)
	}
	q.Remove(3)
	require.Equal(t, 1, q.Len())
	id, ok := q.Evict()
	require.True(t, ok)
	require.Equal(t, uint32(1), id)
	_, ok = q.Evict()
	require.False(t, ok)
	require.Zero(t, q.small.bytes+q.main.bytes)
}

// Turns of the main queue are used up: who had more accesses stays for longer, and nobody for ever.
func TestTurnsAreUsedUp(t *testing.T) {
	q := New()
	for i := range uint32(4) {
		q.Insert(i, uint64(i), 100)
		q.Access(i)
	}
	first, ok := q.Evict() // all go to the main queue, in their order
	require.True(t, ok)
	require.Zero(t, first)
	for i := range uint32(4) {
		for range 4 - i {
			q.Access(i)
		}
	}
	gone := make(chan uint32, 3)
	go func() {
		for range 3 {
			item, _ := q.Evict()
			gone <- item
		}
	}()
	for _, want := range []uint32{3, 2, 1} {
		select {
		case item := <-gone:
			require.Equal(t, want, item)
		case <-time.After(10 * time.Second):
			require.Fail(t, "nobody goes")
		}
	}
}
