//go:build linux

package cache_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

// A client that cannot reach the server gets no value, not even an old one, and holds up no other
// client: it is cut off within the lease. When there is a way again it goes on, with what is there now.
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

// A deadline is kept though the server's host has fallen silent: what is under way goes on without the caller, and
// is over when the client closes.
func TestDeadlineOfASilentServer(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	long := make([]byte, 100<<10) // READ in parts, under the pacer
	clear := func() {
		for _, dev := range []string{"h0", "h1"} {
			require.NoError(t, lab.Clear(dev))
		}
	}
	t.Cleanup(clear)
	calls := map[string]func(ctx context.Context, c *cache.Client) error{
		"Get":      func(ctx context.Context, c *cache.Client) error { _, err := c.Get(ctx, key(1)); return err },
		"long Get": func(ctx context.Context, c *cache.Client) error { _, err := c.Get(ctx, key(2)); return err },
		"GetMulti": func(ctx context.Context, c *cache.Client) error {
			r := c.GetMulti(ctx, [][]byte{key(1), key(2)}, nil)
			return errors.Join(r[0].Err, r[1].Err)
		},
	}
	for name, call := range calls {
		// The device gives up a READ after half a second, or the queue pair is taken down after one. Once in a
		// few times this host is faster.
		const slow = 400 * time.Millisecond
		took := slow
		for try := 0; took >= slow && try < 10; try++ {
			c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
			require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("value")}, 0))
			require.NoError(t, c.Set(ctx, key(2), cache.Item{Value: long}, 0))
			whole(t, c, 2)
			require.NoError(t, call(ctx, c), name)
			for _, dev := range []string{"h0", "h1"} {
				require.NoError(t, lab.Impair(dev, lab.Impairment{Loss: 1}))
			}
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			begin := time.Now()
			err := call(short, c)
			took = time.Since(begin)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			clear()
			require.NoError(t, c.Close(), name)
		}
		require.Less(t, took, slow, name)
	}
}
