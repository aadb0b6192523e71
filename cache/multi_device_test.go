//go:build linux

package cache_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
)

// Many keys at once: each has its own reply or error, hits are READs and nothing else,
// and of what the map does not have the server is asked.
func TestGetMulti(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	const n = 70 // more than are posted together
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 100*i) }
	var keys [][]byte
	for i := range n {
		keys = append(keys, key(i))
		require.NoError(t, c.Set(ctx, key(i), cache.Item{Value: value(i), Flags: uint32(i)}, 0))
	}
	whole(t, c, n)
	check := func(results []cache.Result) {
		t.Helper()
		require.Len(t, results, len(keys))
		for i, r := range results[:n] {
			require.NoError(t, r.Err, i)
			require.True(t, bytes.Equal(value(i), r.Value), i)
			require.Equal(t, uint32(i), r.Flags)
			require.NotZero(t, r.CAS)
		}
	}
	results := c.GetMulti(ctx, keys, nil)
	check(results)
	allocatesNothing(t, 20, func() { results = c.GetMulti(ctx, keys, results) }) // with the results of the last call
	check(results)
	packets := watch(t) // it allocates
	packets.take()
	before := c.Stats()
	results = c.GetMulti(ctx, keys, results)
	check(results)
	require.Zero(t, sends(packets.take()), "no message goes either way")
	st := c.Stats()
	require.Equal(t, [3]uint64{n, n, 0}, [3]uint64{st.Hits - before.Hits, st.Reads - before.Reads, st.Calls - before.Calls})

	// Each key its own: one is there twice, one is none, and two are not there.
	keys = append(keys, key(3), nil, key(n), key(n+1))
	before = c.Stats()
	results = c.GetMulti(ctx, keys, results)
	check(results)
	require.NoError(t, results[n].Err)
	require.True(t, bytes.Equal(value(3), results[n].Value))
	require.ErrorIs(t, results[n+1].Err, cache.ErrKey)
	for _, r := range results[n+2:] {
		require.ErrorIs(t, r.Err, cache.ErrNotFound)
		require.Empty(t, r.Value)
	}
	st = c.Stats()
	require.Equal(t, [3]uint64{2, 2, 2}, [3]uint64{st.Misses - before.Misses, st.Calls - before.Calls, st.Confirmed - before.Confirmed})

	// Another client changes what this one's map may not know yet.
	d := dial(t, s.Addr().String(), cache.Config{})
	require.NoError(t, d.Delete(ctx, key(5)))
	require.NoError(t, d.Set(ctx, key(6), cache.Item{Value: []byte("new")}, 0))
	results = c.GetMulti(ctx, keys, results)
	require.ErrorIs(t, results[5].Err, cache.ErrNotFound)
	require.Equal(t, "new", string(results[6].Value))
	require.NoError(t, results[7].Err)

	require.Empty(t, c.GetMulti(ctx, nil, nil))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, c.GetMulti(ended, [][]byte{key(n)}, nil)[0].Err, context.Canceled)
	require.NoError(t, c.Close())
	for i, r := range c.GetMulti(ctx, keys, results) {
		if i != n+1 {
			require.ErrorIs(t, r.Err, cache.ErrClosed)
		}
		require.Empty(t, r.Value)
	}
}

// Values that are longer than one post's worth, and longer than the client READs.
func TestGetMultiOfLongValues(t *testing.T) {
	s := serve(t, server.Config{Memory: 24 << 20, MaxValue: 1 << 20, Lease: quiet})
	c, ctx := dial(t, s.Addr().String(), cache.Config{MaxRecord: 700 << 10}), within(t)
	unpaced := dial(t, s.Addr().String(), cache.Config{MaxRecord: 700 << 10, PaceFrom: -1})
	var keys [][]byte
	for i, n := range []int{600_000, 900_000, 600_000, 10} {
		keys = append(keys, key(i))
		require.NoError(t, c.Set(ctx, key(i), cache.Item{Value: bytes.Repeat([]byte{byte(i + 1)}, n)}, 0))
	}
	for _, of := range []struct {
		c     *cache.Client
		reads int
	}{{unpaced, 3}, {c, 2*parts(key(0), 600_000) + 1}} {
		whole(t, of.c, len(keys))
		before := of.c.Stats()
		for i, r := range of.c.GetMulti(ctx, keys, nil) {
			require.NoError(t, r.Err)
			require.Len(t, r.Value, []int{600_000, 900_000, 600_000, 10}[i])
			require.Equal(t, len(r.Value), bytes.Count(r.Value, []byte{byte(i + 1)}))
		}
		st := of.c.Stats()
		require.Equal(t, [2]uint64{uint64(of.reads), 1}, [2]uint64{st.Reads - before.Reads, st.Calls - before.Calls})
	}
}
