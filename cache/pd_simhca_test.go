//go:build simhca && linux && cgo

package cache_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/simulated"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/verbs"
)

// Clients on a protection domain of the program connect by RDMA where no device has the connection's address. They
// have nothing left in it when they are closed.
func TestSimulatedProtectionDomain(t *testing.T) {
	ctx := within(t)
	s := simulatedServer(t, server.Config{Memory: 16 << 20})
	pd := simulated.PD(t)
	cfg := cache.Config{PD: pd, RequireRDMA: true}
	a, err := cache.Dial(ctx, s.Addr().String(), cfg)
	require.NoError(t, err)
	b, err := cache.Dial(ctx, s.Addr().String(), cfg)
	require.NoError(t, err)
	require.Equal(t, cache.RDMA, a.Stats().Transport)
	require.ErrorIs(t, pd.Close(), verbs.ErrInUse)

	long := bytes.Repeat([]byte("long"), 50_000)
	require.NoError(t, a.Set(ctx, key(0), cache.Item{Value: long}, 0))
	require.NoError(t, a.Set(ctx, key(1), cache.Item{Value: []byte("short")}, 0))
	for _, c := range []*cache.Client{a, b} {
		whole(t, c, 2)
		for _, r := range c.GetMulti(ctx, [][]byte{key(0), key(1)}, nil) {
			require.NoError(t, r.Err)
		}
		it, err := c.Get(ctx, key(0))
		require.NoError(t, err)
		require.Equal(t, long, it.Value)
		require.EqualValues(t, 3, c.Stats().Hits)
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Set(ctx, key(0), cache.Item{}, 0))
	require.NoError(t, b.Close())
	require.NoError(t, pd.Close())
}
