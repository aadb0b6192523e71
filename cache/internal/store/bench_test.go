package store

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// BenchmarkGet is a get by call of a store that has a client and long records.
func BenchmarkGet(b *testing.B) {
	s := newStore(b, 128, Config{})
	s.Attach(1, 0)
	const keys = 1024
	var requests [keys]wire.Request
	require.Equal(b, kv.OK, do(s, 0, set("long", string(make([]byte, 50_000)))).Status)
	for i := range requests {
		key := strconv.Itoa(i)
		require.Equal(b, kv.OK, do(s, 0, set(key, key)).Status)
		requests[i] = get(key)
	}
	for i := 0; b.Loop(); i++ {
		s.Do(1, &requests[i%keys])
	}
}
