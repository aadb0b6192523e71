package store

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Clients know the secret of the fingerprints, so one can make up keys that all belong into the
// same two buckets, of any table. That costs records, and not memory of the table's: a table that
// is nearly empty does not double for them.
func TestKeysOfTwoBuckets(t *testing.T) {
	const depth, deeper = 4, 6
	s := newStore(t, 4, Config{Depth: depth})
	var keys []string
	for i := 0; len(keys) < 3*wire.BucketEntries; i++ {
		key := strconv.Itoa(i)
		if a, b := wire.Buckets(s.cfg.Secret.Fingerprint([]byte(key)), deeper); a == 4 && b == 8 {
			keys = append(keys, key)
		}
	}
	for i, key := range keys {
		require.Equal(t, kv.OK, do(s, uint64(i+1), set(key, "v")).Status)
		s.Tick(uint64(i+1), 1<<deeper)
		require.Equal(t, kv.OK, do(s, uint64(i+1), get(key)).Status)
	}
	require.Equal(t, 2*wire.BucketEntries, s.Stats().Items)
	require.Equal(t, uint64(wire.BucketEntries), s.Stats().Crowded)
	require.Equal(t, wire.BucketSize<<depth, s.Stats().Table)
}
