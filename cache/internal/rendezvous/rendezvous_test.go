package rendezvous

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("10.77.0.%d:7481", i+1))
	}
	return out
}

func list(t *testing.T, names []string) *List {
	t.Helper()
	l, err := New(names)
	require.NoError(t, err)
	return l
}

const keys = 40_000

// keyOf are keys as programs have them: alike, but for a number.
func keyOf(i int) []byte { return fmt.Appendf(nil, "user:%d:profile", i) }

// Each server has its share of the keys, within what chance allows: six standard
// deviations of a binomial distribution.
func TestBalance(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 10, 50} {
		l, has := list(t, names(n)), make([]int, n)
		for i := range keys {
			has[l.Of(keyOf(i))]++
		}
		p := 1 / float64(n)
		sigma := math.Sqrt(keys * p * (1 - p))
		for i, got := range has {
			require.InDelta(t, keys*p, float64(got), 6*sigma, "server %d of %d", i, n)
		}
	}
}

// The keys of one server are spread evenly when it goes, too: scores of different servers
// have nothing to do with each other.
func TestMovement(t *testing.T) {
	all := names(8)
	before := list(t, all)
	for gone := range all {
		after := list(t, slices.Delete(slices.Clone(all), gone, gone+1))
		moved, to := 0, map[string]int{}
		for i := range keys {
			was, is := all[before.Of(keyOf(i))], after.names[after.Of(keyOf(i))]
			if was != all[gone] {
				require.Equal(t, was, is, "a key of a server that stays")
				continue
			}
			moved++
			to[is]++
		}
		require.InDelta(t, keys/8, moved, 6*math.Sqrt(keys/8))
		for name, n := range to {
			require.InDelta(t, float64(moved)/7, n, 6*math.Sqrt(float64(moved)/7), name)
		}
		require.Len(t, to, 7)
	}
}

// A list in another order is the same list.
func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	all := names(9)
	l := list(t, all)
	for range 20 {
		other := slices.Clone(all)
		rng.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		m := list(t, other)
		for i := range 200 {
			require.Equal(t, all[l.Of(keyOf(i))], other[m.Of(keyOf(i))])
		}
	}
	// Servers with equal scores: of hashes that are equal.
	l.seeds[3], l.seeds[7] = l.seeds[0], l.seeds[0]
	m := &List{slices.Clone(l.names), slices.Clone(l.seeds)}
	slices.Reverse(m.names)
	slices.Reverse(m.seeds)
	for i := range 200 {
		require.Equal(t, l.names[l.Of(keyOf(i))], m.names[m.Of(keyOf(i))])
	}
}

// Clients of all versions choose the same servers.
func TestChoiceStays(t *testing.T) {
	l := list(t, names(5))
	var got []int
	for i := range 24 {
		got = append(got, l.Of(keyOf(i)))
	}
	require.Equal(t, []int{3, 3, 3, 2, 3, 4, 4, 0, 0, 3, 2, 1, 0, 2, 3, 1, 2, 2, 0, 1, 1, 1, 1, 1}, got)
}

func TestNoList(t *testing.T) {
	for _, names := range [][]string{nil, {"a", "b", "a"}, {"a", ""}} {
		_, err := New(names)
		require.ErrorIs(t, err, ErrList)
	}
}

func TestOfDoesNotAllocate(t *testing.T) {
	l, key := list(t, names(10)), keyOf(1)
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Of(key) }))
}
