//go:build simhca && linux && cgo

package cache_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
)

// Of twenty clients' loaders that miss a key one loads it. While it does, there is no record for clients in any way of reading
// or changing it, and an empty one for programs that speak memcached's protocol.
func TestSimulatedLoaders(t *testing.T) {
	ctx := within(t)
	s, i := simulatedPair(t, server.Config{})
	dial := func(cfg cache.Config) *cache.Client {
		cfg.DC = i
		c, err := cache.Dial(ctx, s.Addr().String(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	loading, end := make(chan struct{}, 20), make(chan struct{})
	var loads atomic.Int32
	var all sync.WaitGroup
	var clients []*cache.Client
	for n := range 20 {
		c := dial([]cache.Config{{}, {MapBytes: -1}, {NearBytes: 1 << 20}}[n%3])
		clients = append(clients, c)
		all.Go(func() {
			it, err := cache.NewLoader(c, cache.LoaderConfig{LoadTime: stuck}).Load(ctx, key(1), time.Hour, func(context.Context) (cache.Item, error) {
				loads.Add(1)
				loading <- struct{}{}
				<-end
				return cache.Item{Value: []byte("loaded")}, nil
			})
			assert.NoError(t, err)
			assert.Equal(t, "loaded", string(it.Value))
		})
	}
	<-loading
	time.Sleep(50 * time.Millisecond)
	for _, c := range clients[:3] {
		require.Eventually(t, func() bool { return c.Stats().Whole || c.Stats().Probing }, stuck, time.Millisecond)
		for range 3 {
			_, err := c.Get(ctx, key(1))
			require.ErrorIs(t, err, cache.ErrNotFound)
			require.ErrorIs(t, c.GetMulti(ctx, [][]byte{key(1)}, nil)[0].Err, cache.ErrNotFound)
		}
		require.ErrorIs(t, c.Touch(ctx, key(1), time.Hour), cache.ErrNotFound)
		require.ErrorIs(t, c.Append(ctx, key(1), []byte("more")), cache.ErrNotStored)
		_, err := c.TTL(ctx, key(1))
		require.ErrorIs(t, err, cache.ErrNotFound)
		_, err = c.Increment(ctx, key(1), 1)
		require.ErrorIs(t, err, cache.ErrNotFound)
		for _, store := range []interface {
			Do(context.Context, *kv.Request) (kv.Reply, error)
		}{c, s} {
			a, err := store.Do(ctx, &kv.Request{Op: kv.OpGet, Key: key(1)})
			require.NoError(t, err)
			require.Equal(t, kv.OK, a.Status)
			require.Empty(t, a.Value)
			require.NotZero(t, a.CAS)
		}
	}
	close(end)
	all.Wait()
	require.EqualValues(t, 1, loads.Load())
	for _, c := range clients {
		it, err := c.Get(ctx, key(1))
		require.NoError(t, err)
		require.Equal(t, "loaded", string(it.Value))
	}

	// A deletion during the load counts, and so does an item that was stored meanwhile.
	l := cache.NewLoader(clients[0], cache.LoaderConfig{LoadTime: stuck})
	load := func(k []byte, meanwhile func() error) string {
		it, err := l.Load(ctx, k, 0, func(context.Context) (cache.Item, error) {
			return cache.Item{Value: []byte("old")}, meanwhile()
		})
		require.NoError(t, err)
		return string(it.Value)
	}
	require.Equal(t, "old", load(key(2), func() error {
		require.ErrorIs(t, clients[1].Delete(ctx, key(2)), cache.ErrNotFound)
		return nil
	}))
	_, err := clients[0].Get(ctx, key(2))
	require.ErrorIs(t, err, cache.ErrNotFound)
	require.EqualValues(t, 1, l.Stats().Unstored)
	require.Equal(t, "new", load(key(3), func() error { return clients[1].Add(ctx, key(3), cache.Item{Value: []byte("new")}, 0) }))
	_, err = l.Load(ctx, key(4), 0, func(context.Context) (cache.Item, error) { return cache.Item{}, context.Canceled })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "old", load(key(4), func() error { return nil }), "at once")
}
