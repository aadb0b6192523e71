//go:build simhca && linux && cgo

package cache_test

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/driver/simulated"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/canceltest"
	"github.com/goverbs/goverbs/internal/testproc"
)

func init() { testproc.Awaited = simhca.Awaited }

// simulatedServer returns a server on a simulated device, which is closed with the test.
func simulatedServer(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	simulated.Require(t)
	cfg.Device, cfg.Memory = "mlx5_1", cmp.Or(cfg.Memory, 4<<20)
	s, err := server.Listen(t.Context(), "127.0.0.1:0", cfg)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-served, server.ErrClosed)
	})
	return s
}

// simulatedPair returns such a server, and an initiator with two DCIs on another device.
func simulatedPair(t *testing.T, cfg server.Config) (*server.Server, *dc.Initiator) {
	t.Helper()
	cfg.DC = server.DCConfig{Responders: 1, Backend: dc.Hardware}
	s := simulatedServer(t, cfg)
	i := simulated.Initiator(t, 2)
	require.True(t, i.Hardware())
	return s, i
}

// Writers, readers and an evicting server, as [TestWritersReadersEvictors] has them, READ by DCIs.
func TestSimulatedWritersReadersEvictors(t *testing.T) {
	s, i := simulatedPair(t, server.Config{Memory: 256 << 10, Lease: 10 * time.Second, Log: 256})
	tortureAll(t, s, torturedFor(t, 2*time.Second), math.MaxUint64, func(n int) *cache.Client {
		c, err := cache.Dial(t.Context(), s.Addr().String(), cache.Config{DC: i, MapBytes: torturedMaps[n]})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		require.Equal(t, cache.DC, c.Stats().Transport)
		return c
	})
}

// A cache READ by DCIs: short records, many and long ones; and when the server has replaced its DCT, since a
// client is gone that may know it, the others READ through the new one.
func TestSimulatedCache(t *testing.T) {
	ctx := within(t)
	s, i := simulatedPair(t, server.Config{Memory: 4 << 20, Lease: time.Second})
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
	whole(t, c, 4)
	for k, r := range c.GetMulti(ctx, keys, nil) {
		require.NoError(t, r.Err)
		require.Equal(t, keys[k], r.Value)
	}
	it, err := c.Get(ctx, []byte("long"))
	require.NoError(t, err)
	require.Equal(t, long, it.Value)
	cluster, err := cache.DialCluster(ctx, []string{s.Addr().String()}, cache.ClusterConfig{Config: cache.Config{DC: i}})
	require.NoError(t, err)
	for _, one := range []cache.Cache{c, cluster} {
		canceltest.Methods(t, one, []any{keys[0], &kv.Request{Op: kv.OpDelete, Key: keys[0]}})
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	for _, r := range c.GetMulti(over, keys, nil) {
		require.ErrorIs(t, r.Err, context.Canceled)
	}
	for _, err := range c.SetMulti(over, []cache.Entry{{Key: keys[0]}}, nil) {
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err = cache.Dial(over, s.Addr().String(), cache.Config{DC: i})
	require.ErrorIs(t, err, context.Canceled)
	_, err = cache.DialCluster(over, []string{s.Addr().String()}, cache.ClusterConfig{Config: cache.Config{DC: i}})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, cluster.Close())
	st := c.Stats()
	require.Equal(t, [3]any{cache.DC, uint64(4), uint64(0)}, [3]any{st.Transport, st.Hits, st.Blocked})

	require.NoError(t, other.Close()) // which says goodbye
	require.Eventually(t, func() bool { return s.Stats().Clients == 1 }, stuck, time.Millisecond)
	require.Zero(t, s.Stats().DC.Gone)

	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	_, err = link.Greet(ctx, conn, greet.Hello{Transport: greet.DC}, nil, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Stats().Clients == 2 }, stuck, time.Millisecond)
	require.NoError(t, conn.Close()) // which says nothing
	require.Eventually(t, func() bool { return s.Stats().DC.Gone == 1 }, stuck, time.Millisecond)
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
	}, stuck, 10*time.Millisecond)
}
