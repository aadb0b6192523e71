//go:build simhca && linux && cgo

package cache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/simulated"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
)

// A change by messages over RDMA allocates nothing, at either end.
func TestSimulatedSetAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	s := simulatedServer(t, server.Config{})
	c, err := cache.Dial(within(t), s.Addr().String(), cache.Config{PD: simulated.PD(t), RequireRDMA: true})
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, cache.RDMA, c.Stats().Transport)
	ctx, k, it := t.Context(), key(1), cache.Item{Value: key(1)}
	require.Zero(t, testing.AllocsPerRun(500, func() {
		if err := c.Set(ctx, k, it, 0); err != nil {
			t.Fatal(err)
		}
	}))
}
