//go:build linux

package cache_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

// What FlushAll removed that one client asked for is gone for each other one when it returns, by whichever way that
// is connected, and what is stored afterwards is there: beside READs of many keys by all of them.
func TestFlushAllThroughAnInitiator(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet, DC: server.DCConfig{Responders: 4}})
	ctx, i := within(t), initiator(t, 2)
	all := []*cache.Client{
		dial(t, s.Addr().String(), cache.Config{DC: i}), dial(t, s.Addr().String(), cache.Config{DC: i, MapBytes: 300}), dial(t, s.Addr().String(), cache.Config{}),
	}
	var keys [][]byte
	for k := range 40 {
		keys = append(keys, key(k))
	}
	over, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	for _, c := range all {
		reading.Go(func() {
			for over.Err() == nil {
				for k, r := range c.GetMulti(ctx, keys, nil) {
					if r.Err != nil && !errors.Is(r.Err, cache.ErrNotFound) {
						t.Error(k, r.Err)
					}
				}
			}
		})
	}
	for n := range 30 {
		setter, flusher, value := all[n%3], all[(n/3)%3], strconv.Itoa(n)
		for _, k := range keys[:5] {
			require.NoError(t, setter.Set(ctx, k, cache.Item{Value: []byte(value)}, 0))
		}
		for _, c := range all {
			it, err := c.Get(ctx, keys[n%5])
			require.NoError(t, err)
			require.Equal(t, value, string(it.Value))
		}
		require.NoError(t, flusher.FlushAll(ctx))
		for _, c := range all {
			_, err := c.Get(ctx, keys[n%5])
			require.ErrorIs(t, err, cache.ErrNotFound)
			for _, r := range c.GetMulti(ctx, keys, nil) {
				require.ErrorIs(t, r.Err, cache.ErrNotFound)
			}
		}
	}
	stop()
	reading.Wait()
	require.Equal(t, cache.DC, all[0].Stats().Transport)
}

// A server that ends in peace and comes back with its records: clients through an initiator find them, and nothing
// that was acknowledged is lost, or comes back.
func TestWarmRestartThroughAnInitiator(t *testing.T) {
	lab.NoLeftovers(t)
	const lives = 4
	ctx, at := within(t), net.JoinHostPort(lab.Require(t, 2)[1].Addr.String(), "0")
	cfg := server.Config{Memory: 4 << 20, Lease: 500 * time.Millisecond, DC: server.DCConfig{Responders: 2}, Snapshot: filepath.Join(t.TempDir(), "snapshot")}
	i := initiator(t, 1)
	var clients []*cache.Client
	var sum, unknown atomic.Int64 // of changes that were acknowledged, and of those with an unknown outcome
	var working sync.WaitGroup
	over, stop := context.WithCancel(ctx)
	defer stop()
	count := []byte("count")
	for life := range lives {
		s, err := server.Listen(ctx, at, cfg)
		require.NoError(t, err)
		serving, end := context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() { served <- s.Serve(serving) }()
		if at = s.Addr().String(); life == 0 {
			clients = []*cache.Client{dial(t, at, cache.Config{DC: i}), dial(t, at, cache.Config{DC: i, MapBytes: 300})}
			require.NoError(t, clients[0].Set(ctx, count, cache.Item{Value: []byte("0")}, 0))
			require.NoError(t, clients[0].Set(ctx, key(0), cache.Item{Value: []byte("gone")}, 0))
			require.NoError(t, clients[0].Delete(ctx, key(0)))
			working.Go(func() {
				for over.Err() == nil {
					unknown.Add(1)
					switch n, err := clients[0].Increment(ctx, count, 1); {
					case err == nil:
						unknown.Add(-1)
						sum.Store(int64(n))
					case !errors.Is(err, cache.ErrOutcomeUnknown):
						t.Error(err)
						return
					}
				}
			})
			working.Go(func() {
				for over.Err() == nil {
					least := sum.Load()
					it, err := clients[1].Get(ctx, count)
					if err != nil {
						t.Error(err)
						return
					}
					n, err := strconv.ParseInt(string(it.Value[:max(len(it.Value), 1)]), 10, 64)
					if err != nil || n < least {
						t.Errorf("%q, after %d: %v", it.Value, least, err)
						return
					}
					if _, err := clients[1].Get(ctx, key(0)); !errors.Is(err, cache.ErrNotFound) {
						t.Error("what was deleted is back: ", err)
						return
					}
				}
			})
		}
		before := sum.Load()
		require.Eventually(t, func() bool { return sum.Load() > before+10 }, stuck, time.Millisecond)
		require.Eventually(t, func() bool { return clients[1].Stats().Transport == cache.DC }, stuck, time.Millisecond)
		if life == lives-1 {
			stop()
			working.Wait()
			last := sum.Load()
			it, err := clients[0].Get(ctx, count)
			require.NoError(t, err)
			require.Equal(t, strconv.FormatInt(last, 10), string(it.Value))
			t.Logf("%d increments in %d lives, %d of which nobody knew", last, lives, unknown.Load())
		}
		end()
		require.NoError(t, <-served)
		_, err = s.Save()
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
}
