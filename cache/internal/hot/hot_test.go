package hot

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// Beside any number of keys that are asked for once, those are found that are asked for often,
// and counts are right to what the algorithm promises.
func TestHotKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	var k Keys
	top, total := k.Top(9, nil)
	require.Empty(t, top)
	require.Zero(t, total)
	const n = window - 1
	had := map[uint64]uint64{}
	for range n {
		f := rng.Uint64()
		switch p := rng.IntN(100); {
		case p < 20:
			f = 1
		case p < 30:
			f = 2
		case p < 33:
			f = 3
		}
		had[f]++
		k.Access(f)
	}
	top, total = k.Top(9, nil)
	require.Equal(t, uint64(n), total)
	require.Len(t, top, 3)
	for i, c := range top {
		require.Equal(t, uint64(i+1), c.Fingerprint)
		require.GreaterOrEqual(t, c.Accesses, had[c.Fingerprint])
		require.LessOrEqual(t, c.Accesses-c.Surplus, had[c.Fingerprint])
		require.LessOrEqual(t, c.Surplus, uint64(n/counters))
	}
	two, _ := k.Top(2, nil)
	require.Equal(t, top[:2], two)
}

// What is not asked for any more is forgotten.
func TestHotKeysCool(t *testing.T) {
	var k Keys
	for range window {
		k.Access(1)
	}
	for i := range uint64(8 * window) {
		k.Access(2 + i%2)
	}
	top, total := k.Top(9, nil)
	require.Len(t, top, 2)
	require.Equal(t, uint64(3), top[0].Fingerprint+top[1].Fingerprint-2)
	require.Less(t, total, uint64(2*window))
}

// Keys that are all alike are none that is hot.
func TestNothingIsHot(t *testing.T) {
	var k Keys
	for i := range uint64(window - 1) {
		k.Access(i % 200)
	}
	top, _ := k.Top(9, nil)
	require.Empty(t, top)
}

// A key that had to make room and comes back has no fewer accesses than it really had.
func TestNoCountIsTooLow(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	var k Keys
	had := map[uint64]uint64{}
	for range 3000 {
		f := rng.Uint64N(2 * counters)
		had[f]++
		k.Access(f)
	}
	for _, c := range k.all[:k.n] {
		require.GreaterOrEqual(t, c.Accesses, had[c.Fingerprint])
		require.LessOrEqual(t, c.Accesses-c.Surplus, had[c.Fingerprint])
	}
}

// A key that was hot from the beginning is not displaced.
func TestFirstKeyStays(t *testing.T) {
	var k Keys
	for range 1000 {
		k.Access(1)
	}
	for i := range uint64(20 * counters) {
		k.Access(2 + i)
	}
	top, total := k.Top(9, nil)
	require.Equal(t, uint64(1000+20*counters), total)
	require.Equal(t, []Count{{Fingerprint: 1, Accesses: 1000}}, top)
}

// What has just its share of all is not hot.
func TestShareIsNotHot(t *testing.T) {
	var k Keys
	for i := range uint64(10 * counters) {
		k.Access(i % counters)
	}
	top, _ := k.Top(9, nil)
	require.Empty(t, top)
	k.Access(5)
	k.Access(5)
	top, _ = k.Top(9, nil)
	require.Len(t, top, 1)
}

// Counts are halved with what may be too much in them: keys that are not asked for twice are not hot
// after many windows either.
func TestNothingGetsHot(t *testing.T) {
	var k Keys
	for i := range uint64(5 * window) {
		k.Access(i * 0x9e3779b97f4a7c15)
	}
	for _, c := range k.all[:k.n] {
		require.LessOrEqual(t, c.Surplus, c.Accesses)
	}
	top, _ := k.Top(10, nil)
	require.Empty(t, top)
}

// The key with the fewest accesses makes room, wherever it is, and the one that comes is taken for it.
func TestLeastMakesRoom(t *testing.T) {
	for rare := range uint64(counters) {
		var k Keys
		for f := range uint64(counters) {
			k.Access(f)
			if f != rare {
				k.Access(f)
			}
		}
		k.Access(counters)
		require.Contains(t, k.all[:], Count{Fingerprint: counters, Accesses: 2, Surplus: 1})
		for _, c := range k.all {
			require.NotEqual(t, rare, c.Fingerprint)
		}
	}
}

// The hottest key is first, in whichever order they came.
func TestHottestIsFirst(t *testing.T) {
	var k Keys
	for f := range uint64(5) {
		for range 10 * (f + 1) {
			k.Access(f)
		}
	}
	top, _ := k.Top(5, nil)
	require.Len(t, top, 5)
	for i, c := range top {
		require.EqualValues(t, 4-i, c.Fingerprint)
	}
}
