//go:build linux

package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/dc"
)

// A client that READs by queue pairs of its own since it could not READ through the server's target does so
// through the target when it can, and no request is lost on the way, of whatever kind.
func TestBackToTheInitiator(t *testing.T) {
	cfg := server.Config{Lease: quiet, DC: server.DCConfig{Responders: 4}}
	var there atomic.Bool
	s, address := other(t, cfg, func(target *wire.Target) {
		if !there.Load() {
			target.Key++ // no target has that key
		}
	})
	ctx := within(t)
	i := initiatorAs(t, dc.InitiatorConfig{Contexts: 2, AckTimeout: 500 * time.Millisecond, ConnectTimeout: 300 * time.Millisecond})
	c := dial(t, address, cache.Config{DC: i, RetryRDMA: 50 * time.Millisecond, NearBytes: 1 << 20})
	st := c.Stats()
	require.Equal(t, cache.RDMA, st.Transport)
	require.NotEmpty(t, st.FallbackReason)
	// A change and a READ of it, short and in parts, and an increment: each knows what the last one has left.
	var sum uint64
	long := bytes.Repeat([]byte("w"), 100_000)
	require.NoError(t, c.Set(ctx, key(3), cache.Item{Value: []byte("0")}, 0))
	works := []func(n int) error{
		func(n int) error {
			if err := c.Set(ctx, key(1), cache.Item{Value: key(n)}, 0); err != nil {
				return err
			}
			it, err := c.Get(ctx, key(1))
			if err == nil && !bytes.Equal(it.Value, key(n)) {
				err = fmt.Errorf("%q was stored, and there is %q", key(n), it.Value)
			}
			return err
		},
		func(n int) error {
			long[0] = byte(n)
			if err := c.Set(ctx, key(2), cache.Item{Value: long}, 0); err != nil {
				return err
			}
			it, err := c.Get(ctx, key(2))
			if err == nil && !bytes.Equal(long, it.Value) {
				err = errors.New("what was stored is not there")
			}
			return err
		},
		func(int) (err error) {
			before := sum
			if sum, err = c.Increment(ctx, key(3), 1); err == nil && sum != before+1 {
				err = fmt.Errorf("%d follows %d", sum, before)
			}
			return err
		},
	}
	var running sync.WaitGroup
	over := make(chan struct{})
	ended := make([]error, len(works))
	times := make([]atomic.Int64, len(works))
	for w, work := range works {
		running.Go(func() {
			for n := 1; ended[w] == nil; n++ {
				select {
				case <-over:
					return
				default:
				}
				if err := work(n); err != nil {
					ended[w] = fmt.Errorf("work %d, the %dth time: %w", w, n, err)
				}
				times[w].Add(1)
			}
		})
	}
	all := func(least int64) bool {
		for w := range times {
			if times[w].Load() < least {
				return false
			}
		}
		return true
	}
	worked := func() {
		for w := range times {
			times[w].Store(0)
		}
		require.Eventually(t, func() bool { return all(3) }, stuck, time.Millisecond)
	}
	worked()
	there.Store(true)
	require.Eventually(t, func() bool { return c.Stats().Transport == cache.DC }, stuck, time.Millisecond)
	worked()
	close(over)
	running.Wait()
	for _, err := range ended {
		require.NoError(t, err)
	}
	st = c.Stats()
	require.Empty(t, st.FallbackReason)
	require.EqualValues(t, 2, st.Sessions)
	require.Eventually(t, func() bool { return s.Stats().Clients == 1 }, stuck, time.Millisecond, "the other connection ends")
}
