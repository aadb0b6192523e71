//go:build linux

package cache_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

// A client that the server cannot be reached from gets no answer, not even an old one, and holds up
// nobody: it is cut off within the lease. When there is a way again it goes on, with what is there now.
func TestPartition(t *testing.T) {
	s := serve(t, server.Config{Lease: 400 * time.Millisecond})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("old")}, 0))
	whole(t, c, 1)
	_, err := c.Get(ctx, key(1))
	require.NoError(t, err)
	clear := func() {
		for _, dev := range []string{"h0", "h1"} {
			require.NoError(t, lab.Clear(dev))
		}
	}
	t.Cleanup(clear)
	for _, dev := range []string{"h0", "h1"} {
		require.NoError(t, lab.Impair(dev, lab.Impairment{Loss: 1}))
	}
	set(t, s, key(1), []byte("new"))
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = c.Get(short, key(1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool {
		st := s.Stats()
		return st.Clients == 0 && st.Quarantine == 0
	}, stuck, time.Millisecond, "what it could READ is free again")
	clear()
	it, err := c.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, "new", string(it.Value))
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("newest")}, 0))
	require.Greater(t, c.Stats().Sessions, uint64(1))
}
