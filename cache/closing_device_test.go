//go:build linux

package cache_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// Clients by each way, their initiator and their server close in any order, twice, while calls of all kinds are under
// way: each Close returns, each call ends, and nothing is left: no object of the device, no registered memory, and no
// goroutine.
func TestCloseInAnyOrder(t *testing.T) {
	lab.NoLeftovers(t)
	orders := []string{"client initiator server", "client server initiator", "initiator client server", "initiator server client", "server client initiator", "server initiator client", "together"}
	for _, order := range orders {
		t.Run(order, func(t *testing.T) {
			closeInOrder(t, strings.Fields(order))
			end, n := time.Now().Add(stuck), 0
			for ; ; time.Sleep(10 * time.Millisecond) {
				if n = packageGoroutines(); n == 0 {
					return
				}
				if time.Now().After(end) {
					b := make([]byte, 1<<20)
					t.Fatalf("%d goroutines are left:\n%s", n, b[:runtime.Stack(b, true)])
				}
			}
		})
	}
}

// packageGoroutines are those that code of clients, servers and initiators runs in.
func packageGoroutines() (n int) {
	b := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		for _, of := range []string{"goverbs/cache.", "goverbs/cache/server.", "goverbs/dc."} {
			if strings.Contains(g, of) {
				n++
				break
			}
		}
	}
	return n
}

func closeInOrder(t *testing.T, order []string) {
	ends, ctx := lab.Require(t, 2), within(t)
	s, err := server.Listen(ctx, net.JoinHostPort(ends[1].Addr.String(), "0"), server.Config{
		Memory: 4 << 20, Lease: 500 * time.Millisecond, DC: server.DCConfig{Responders: 4},
	})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	dev, err := verbs.Open(ends[0].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	gid, err := dev.FindGID(verbs.GIDQuery{Addr: ends[0].Addr})
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, GID: gid, Contexts: 2, ConnectTimeout: 300 * time.Millisecond})
	require.NoError(t, err)
	var clients []*cache.Client
	for _, cfg := range []cache.Config{
		near(t, cache.Config{DC: i, NearBytes: 1 << 20}), near(t, cache.Config{DC: i, MapBytes: 300}), near(t, cache.Config{PollFor: time.Millisecond}),
		{Dialer: tcpOnly()},
	} {
		cfg.RetryRDMA = 20 * time.Millisecond
		c, err := cache.Dial(ctx, s.Addr().String(), cfg)
		require.NoError(t, err)
		clients = append(clients, c)
	}
	require.Equal(t, cache.DC, clients[0].Stats().Transport, clients[0].Stats().FallbackReason)
	var working sync.WaitGroup
	for n, c := range clients {
		var keys [][]byte
		for k := range 20 {
			keys = append(keys, key(20*n+k))
		}
		long := make([]byte, 100_000)
		loader := cache.NewLoader(c, cache.LoaderConfig{})
		for _, work := range []func() error{
			func() error { _, err := c.Get(ctx, keys[0]); return err },
			func() error { return c.Set(ctx, keys[0], cache.Item{Value: long}, 0) },
			func() error { return c.GetMulti(ctx, keys, nil)[1].Err },
			func() error { return c.SetMulti(ctx, []cache.Entry{{Key: keys[1]}, {Key: keys[2]}}, nil)[1] },
			func() error {
				_, err := loader.Load(ctx, keys[3], time.Millisecond, func(context.Context) (cache.Item, error) { return cache.Item{}, nil })
				return err
			},
			func() error { return c.FlushAll(ctx) },
		} {
			working.Go(func() {
				for err := error(nil); !errors.Is(err, cache.ErrClosed) && ctx.Err() == nil; err = work() {
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	time.Sleep(100 * time.Millisecond)
	closers := map[string]func() error{
		"client": func() error {
			var all sync.WaitGroup
			errs := make([]error, 2*len(clients))
			for n := range errs {
				all.Go(func() { errs[n] = clients[n/2].Close() })
			}
			all.Wait()
			return errors.Join(errs...)
		},
		"initiator": i.Close,
		"server":    s.Close,
	}
	if len(order) != len(closers) {
		var all sync.WaitGroup
		for _, c := range closers {
			for range 2 {
				all.Go(func() { assert.NoError(t, c()) })
			}
		}
		all.Wait()
	} else {
		for _, who := range order {
			require.NoError(t, closers[who](), who)
			time.Sleep(50 * time.Millisecond) // the others notice
		}
	}
	working.Wait()
	require.NoError(t, ctx.Err(), "a call has not ended")
	for _, c := range closers {
		require.NoError(t, c())
	}
	require.ErrorIs(t, <-served, server.ErrClosed)
	require.NoError(t, pd.Close())
	require.NoError(t, dev.Close())
}
