//go:build simhca && linux && cgo

package dc_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/dc"
)

// A cache READ by DCIs: short records, many and long ones; and when the server has replaced its DCT, since a
// client is gone that may know it, the others READ through the new one.
func TestSimulatedCache(t *testing.T) {
	a, _ := dcHosts(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	s, err := server.Listen(ctx, "127.0.0.1:0", server.Config{
		Device: simulated[1], Memory: 4 << 20, Lease: 400 * time.Millisecond, DC: server.DCConfig{Responders: 1, Backend: dc.Hardware},
	})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	defer func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-served, server.ErrClosed)
	}()
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 2})
	require.True(t, i.Hardware())
	dial := func() *cache.Client {
		c, err := cache.Dial(ctx, s.Addr().String(), cache.Config{DC: i})
		require.NoError(t, err)
		return c
	}
	c, other := dial(), dial()
	defer c.Close()
	keys := [][]byte{[]byte("one"), []byte("two"), []byte("three")}
	for _, k := range keys {
		require.NoError(t, c.Set(ctx, k, cache.Item{Value: k}, 0))
	}
	long := bytes.Repeat([]byte("long"), 50_000)
	require.NoError(t, c.Set(ctx, []byte("long"), cache.Item{Value: long}, 0))
	whole := func(n int) {
		require.Eventually(t, func() bool { st := c.Stats(); return st.Whole && st.Entries == n }, testTimeout, time.Millisecond)
	}
	whole(4)
	for k, r := range c.GetMulti(ctx, keys, nil) {
		require.NoError(t, r.Err)
		require.Equal(t, keys[k], r.Value)
	}
	it, err := c.Get(ctx, []byte("long"))
	require.NoError(t, err)
	require.Equal(t, long, it.Value)
	st := c.Stats()
	require.Equal(t, [3]any{cache.DC, uint64(4), uint64(0)}, [3]any{st.Transport, st.Hits, st.Blocked})

	require.NoError(t, other.Close())
	require.NoError(t, c.Set(ctx, keys[0], cache.Item{Value: []byte("new")}, 0))
	for s.Stats().Quarantine > 0 {
		it, err := c.Get(ctx, keys[0])
		require.NoError(t, err)
		require.Equal(t, "new", string(it.Value))
	}
	require.NotZero(t, s.Stats().DC.Replaced)
	require.Eventually(t, func() bool {
		hits := c.Stats().Hits
		_, err := c.Get(ctx, keys[1])
		require.NoError(t, err)
		return c.Stats().Hits > hits
	}, testTimeout, 10*time.Millisecond)
	require.EqualValues(t, 1, c.Stats().Sessions)
}
