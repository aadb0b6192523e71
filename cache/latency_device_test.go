//go:build linux

package cache_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
)

// counts returns how many operations of each kind and transport have a latency.
func counts[L cache.Latency | server.Latency](all []L) map[string]uint64 {
	n := map[string]uint64{}
	for i := range all {
		l := cache.Latency(all[i])
		n[l.Operation+" "+l.Transport] = l.Nanoseconds.Total()
	}
	return n
}

// Both sides count each operation by its transport, and the server each client by what it has of the
// map. Of READs one in eight is timed, the first to begin with, and counts eight times.
func TestLatenciesAndModes(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	ctx := within(t)
	c := dial(t, s.Addr().String(), cache.Config{})
	for i := range 3 {
		require.NoError(t, c.Set(ctx, key(i), cache.Item{Value: key(i)}, 0))
	}
	whole(t, c, 3)
	for i := range 3 {
		_, err := c.Get(ctx, key(i))
		require.NoError(t, err)
	}
	_, err := c.Get(ctx, []byte("none"))
	require.ErrorIs(t, err, cache.ErrNotFound)
	c.GetMulti(ctx, [][]byte{key(0), key(1)}, nil)
	require.NoError(t, c.Delete(ctx, key(0)))
	require.Equal(t, map[string]uint64{"store rdma": 3, "read rdma": 8, "get rdma": 1, "get_multi rdma": 1, "delete rdma": 1}, counts(c.Stats().Latencies))
	require.Equal(t, map[string]uint64{"store rdma": 3, "get rdma": 1, "delete rdma": 1}, counts(s.Stats().Latencies), "a READ takes no time of the server")

	dial(t, s.Addr().String(), cache.Config{MapBytes: 1 << 10})
	require.Eventually(t, func() bool { return s.Stats().Modes[server.ModeBounded] == 1 }, stuck, time.Millisecond)
	require.Equal(t, map[string]int{server.ModeWhole: 1, server.ModeBounded: 1, server.ModeNone: 0, server.ModeDC: 0, server.ModeTCP: 0}, s.Stats().Modes)
	records := 0
	for _, z := range s.Stats().Sizes {
		records += z.Records
	}
	require.Equal(t, 2, records)
}
