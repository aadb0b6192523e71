package store

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/evict/lrutest"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// The hit rate of values of many sizes is at least that of LRU, which wastes no memory. Gets that miss are followed
// by a set.
func TestHitRateOfSizeMixes(t *testing.T) {
	scale := 1
	if testing.Short() {
		scale = 8
	}
	for _, c := range []struct {
		name    string
		memory  int
		longest float64
		keys    int
		least   float64 // points above LRU
		changes bool
	}{
		{"64 MiB, to 100 KB", 64 << 20, 100e3, 60_000, 3, false},
		{"64 MiB, to 900 KB", 64 << 20, 900e3, 20_000, 3, false},
		{"64 MiB, to 10 KB", 64 << 20, 10e3, 120_000, 0, false},
		{"128 MiB, to 100 KB", 128 << 20, 100e3, 80_000, 3, false},
		{"256 MiB, to 900 KB", 256 << 20, 900e3, 30_000, 3, false},
		{"64 MiB, to 1 KB", 64 << 20, 1e3, 250_000, -1.3, false},
		{"64 MiB, to 10 KB, then to 100 KB", 64 << 20, 10e3, 60_000, 0, true},
	} {
		c.memory, c.keys, c.longest = c.memory/scale, c.keys/scale, c.longest/math.Sqrt(float64(scale))
		a, err := arena.New(2 << 20)
		require.NoError(t, err)
		_, err = a.Add(make([]byte, c.memory))
		require.NoError(t, err)
		s, err := New(Config{
			Epoch: 7, Arena: a, Depth: 8, FreeTable: func([]byte) {},
			AllocTable: func(n int) ([]byte, wire.Where) { return make([]byte, n), wire.Where{Key: 1} },
		})
		require.NoError(t, err)
		rng := rand.New(rand.NewPCG(1, 2))
		sizes := make([]int, c.keys)
		fill := func(longest float64) {
			for i := range sizes {
				sizes[i] = int(100 * math.Pow(longest/100, rng.Float64()))
			}
		}
		fill(c.longest)
		z := rand.NewZipf(rng, 1.05, 10, uint64(c.keys-1))
		value := make([]byte, 1<<20)
		plain := lrutest.New(c.memory)
		first, now := 0, uint64(1)
		shares := func(n int) (float64, float64) {
			hits, others := 0, 0
			for range n {
				k := int(z.Uint64() * 2654435761 % uint64(c.keys))
				key := "key " + strconv.Itoa(first+k)
				now++
				if do(s, now, get(key)).Status == wire.OK {
					hits++
				} else {
					q := set(key, "")
					q.Value = value[:sizes[k]]
					require.Equal(t, wire.OK, s.Do(now, &q).Status)
				}
				if plain.Get(uint64(first+k), wire.RecordSize(len(key), sizes[k])) {
					others++
				}
			}
			return 100 * float64(hits) / float64(n), 100 * float64(others) / float64(n)
		}
		shares(c.keys * 5 / 2)
		if c.changes {
			first = c.keys
			fill(100e3)
			shares(c.keys)
		}
		hits, others := shares(c.keys * 5 / 2)
		st := s.Stats()
		stored := 0
		for i := range s.items {
			if s.items[i].version != 0 {
				r := wire.PeekRecord(a.Bytes(s.items[i].place))
				stored += len(r.Key) + len(r.Value)
			}
		}
		perByte := float64(st.Arena.Total) / float64(stored)
		t.Logf("%s: %.1f %%, LRU %.1f %%; %.3f moves for each set, %.3f bytes of memory for each that is stored", c.name, hits, others, float64(st.Moved)/float64(st.Sets), perByte)
		require.Greater(t, hits, others+c.least, c.name)
		if c.longest >= 10e3/math.Sqrt(float64(scale)) {
			require.LessOrEqual(t, perByte, 1.25, c.name)
		}
	}
}
