package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The hit rate of values of many sizes is at least that of LRU, which wastes no memory, and comes back within a pass and
// a half when all keys are others.
func TestHitRateOfSizeMixes(t *testing.T) {
	for _, m := range mixes {
		if testing.Short() {
			m.Memory, m.Keys, m.Longest, m.Then = m.Memory/8, m.Keys/8, m.Longest/math.Sqrt(8), m.Then/math.Sqrt(8)
		}
		ours, err := newStore(m.Memory)
		require.NoError(t, err)
		results, err := m.run(1, ours, newLRU(m.Memory))
		require.NoError(t, err)
		perByte, err := ours.perByte()
		require.NoError(t, err)
		st := ours.Stats()
		t.Logf("%s: %.1f %%, LRU %.1f %%; %.2f passes, LRU %.2f; %.3f moves for each set, %.3f bytes of memory for each that is stored", m.Name,
			results[0].HitRate, results[1].HitRate, results[0].Passes, results[1].Passes, float64(st.Moved)/float64(st.Sets), perByte)
		least := results[1].HitRate
		if m.Longest <= 1e3 {
			least-- // where nearly all sizes are the same, what LRU does not lose counts
		}
		require.Greater(t, results[0].HitRate, least, m.Name)
		require.LessOrEqual(t, results[0].Passes, 1.5, m.Name)
		if m.Longest >= 1e3 {
			require.LessOrEqual(t, perByte, 1.25, m.Name)
		}
	}
}
