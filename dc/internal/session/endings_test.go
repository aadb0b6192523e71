package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEndings: a session that is over is known for as long as a connect packet may be late,
// whatever else ends. What is older makes room.
func TestEndings(t *testing.T) {
	var o endings
	key := func(n int) contextKey { return contextKey{sender: uint64(n)} }
	const each = lateConnect / 1000
	for n := range 5000 {
		now := time.Duration(n) * each
		o.add(key(n), 7, n%2 == 0, now, time.Minute)
		for _, back := range []int{0, 1, 500, 999} {
			k := max(n-back, 0)
			require.True(t, o.late(key(k), 7))
			require.Equal(t, k%2 == 0, o.refused(key(k), 7))
		}
		require.LessOrEqual(t, len(o.ended), 2*1001)
	}
}

// TestEndingsOfOneContext: earlier attempts are over with a later one, and do not take its place.
func TestEndingsOfOneContext(t *testing.T) {
	var o endings
	key := contextKey{sender: 1}
	require.False(t, o.late(key, 1<<31+1), "none is over yet")
	o.add(key, 9, false, 0, time.Minute)
	o.add(key, 8, true, 0, time.Minute)
	require.True(t, o.late(key, 8))
	require.True(t, o.late(key, 9))
	require.False(t, o.late(key, 10))
	require.False(t, o.refused(key, 8))
	o.add(key, 9, true, 0, time.Minute)
	require.True(t, o.refused(key, 9))
	require.False(t, o.refused(key, 8))
}
