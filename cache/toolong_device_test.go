//go:build linux

package cache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
)

// A value that is much longer than the server takes is refused, whatever the transport, and nothing else is: the
// connection stays, and what other goroutines ask for.
func TestValuesThatAreTooLong(t *testing.T) {
	s := serve(t, server.Config{MaxValue: 100_000, Lease: quiet})
	byTCP, err := cache.Dial(within(t), s.Addr().String(), cache.Config{Dialer: tcpOnly()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, byTCP.Close()) })
	for by, c := range map[cache.Transport]*cache.Client{cache.RDMA: dial(t, s.Addr().String(), cache.Config{}), cache.TCP: byTCP} {
		require.Equal(t, by, c.Stats().Transport)
		require.NoError(t, c.Set(within(t), key(1), cache.Item{}, 0))
		for _, n := range []int{100_001, 500_000, 2 << 20} {
			require.ErrorIs(t, c.Set(within(t), key(1), cache.Item{Value: make([]byte, n)}, 0), cache.ErrTooLarge, n)
			require.ErrorIs(t, c.Append(within(t), key(1), make([]byte, n)), cache.ErrTooLarge, n)
			errs := c.SetMulti(within(t), []cache.Entry{
				{Key: key(2), Item: cache.Item{Value: []byte("a")}}, {Key: key(3), Item: cache.Item{Value: make([]byte, n)}}, {Key: key(4), Item: cache.Item{Value: make([]byte, 100_000)}},
			}, nil)
			require.NoError(t, errs[0])
			require.ErrorIs(t, errs[1], cache.ErrTooLarge)
			require.NoError(t, errs[2])
		}
		require.Equal(t, uint64(1), c.Stats().Sessions, by)
	}
}
