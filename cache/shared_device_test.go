//go:build linux

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

func sharedRecord(t testing.TB, c *cache.Client, name string) *cache.Shared {
	t.Helper()
	r, err := c.Shared([]byte(name))
	require.NoError(t, err)
	return r
}

// Clients change records together, without the server once they know where these are: no change is
// lost, and no reader sees a half of one.
func TestSharedRecords(t *testing.T) {
	secret := bytes.Repeat([]byte("k"), 32)
	s := serve(t, server.Config{Key: secret, Lease: quiet, Shared: server.SharedConfig{Records: 3}})
	ctx := within(t)
	a, b := dial(t, s.Addr().String(), cache.Config{Key: secret}), dial(t, s.Addr().String(), cache.Config{Key: secret})
	n, err := sharedRecord(t, a, "visits").Number(ctx)
	require.NoError(t, err)
	require.Zero(t, n, "nobody has changed it")
	require.NoError(t, sharedRecord(t, a, "text").Update(ctx, func(old []byte) ([]byte, error) {
		require.Empty(t, old)
		return bytes.Repeat([]byte{1}, 64), nil
	}))
	_, err = sharedRecord(t, b, "visits").Add(ctx, 0)
	require.NoError(t, err)
	_, err = sharedRecord(t, b, "text").Read(ctx, nil)
	require.NoError(t, err)

	calls := [2]uint64{a.Stats().Calls, b.Stats().Calls}
	const each = 15
	var wg sync.WaitGroup
	// Soft-RoCE now and then completes a request without its result: then the outcome is unknown.
	var known, unknown atomic.Int64
	for i, c := range []*cache.Client{a, b, a, b} {
		visits, text := sharedRecord(t, c, "visits"), sharedRecord(t, c, "text")
		wg.Go(func() {
			for range each {
				switch _, err := visits.Add(ctx, int64(i+1)); {
				case err == nil:
					known.Add(int64(i + 1))
				case errors.Is(err, cache.ErrUnknown):
					unknown.Add(int64(i + 1))
				default:
					t.Error(err)
					return
				}
				if err := text.Update(ctx, func(old []byte) ([]byte, error) {
					return bytes.Repeat([]byte{byte(i)}, 32+i), nil
				}); err != nil && !errors.Is(err, cache.ErrUnknown) {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for range 2 * each {
				seen, err := text.Read(ctx, nil)
				if err != nil || len(seen) < 32 || !bytes.Equal(seen, bytes.Repeat(seen[:1], len(seen))) {
					t.Errorf("%x %v", seen, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, c := range []*cache.Client{a, b} {
		n, err := sharedRecord(t, c, "visits").Number(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, known.Load(), "no change is lost")
		require.LessOrEqual(t, n, known.Load()+unknown.Load())
	}
	require.Less(t, a.Stats().Calls-calls[0]+b.Stats().Calls-calls[1], uint64(each), "the server is asked after a lost connection alone")
	require.Zero(t, s.Stats().Items, "they are no records of keys")

	// What is refused.
	own := errors.New("no")
	require.ErrorIs(t, sharedRecord(t, a, "text").Update(ctx, func([]byte) ([]byte, error) { return nil, fmt.Errorf("%w: %w", own, cache.ErrClosed) }), own)
	_, err = sharedRecord(t, a, "text").Add(ctx, 1)
	require.ErrorIs(t, err, cache.ErrNotNumeric)
	require.Error(t, sharedRecord(t, a, "text").Update(ctx, func([]byte) ([]byte, error) { return make([]byte, 65), nil }))
	_, err = sharedRecord(t, a, "third").Number(ctx)
	require.NoError(t, err)
	_, err = sharedRecord(t, a, "fourth").Number(ctx)
	require.ErrorIs(t, err, cache.ErrNoMemory)
	_, err = a.Shared(nil)
	require.ErrorIs(t, err, cache.ErrKey)
	last := sharedRecord(t, a, "visits")
	require.NoError(t, a.Close())
	_, err = last.Add(ctx, 1)
	require.ErrorIs(t, err, cache.ErrClosed)
	n, err = sharedRecord(t, b, "visits").Number(ctx)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, known.Load())
}

// A server without them says so.
func TestNoSharedRecords(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	_, err := sharedRecord(t, dial(t, s.Addr().String(), cache.Config{}), "visits").Add(within(t), 1)
	require.ErrorIs(t, err, cache.ErrNoShared)
}

// While the server's process is stopped clients change what they have found. When it is killed, what
// was there is gone, and no client takes a record of the next life for one of the last.
func TestSharedRecordsWithoutTheServer(t *testing.T) {
	lab.NoLeftovers(t)
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	c, ctx := dial(t, p.address, cache.Config{}), within(t)
	one, two := sharedRecord(t, c, "one"), sharedRecord(t, c, "two")
	for i, r := range []*cache.Shared{one, two} {
		_, err := r.Add(ctx, int64(10*i))
		require.NoError(t, err)
	}
	changed := func() bool {
		before, err := two.Number(ctx)
		require.NoError(t, err)
		p.stop()
		defer p.signal(syscall.SIGCONT)
		soon, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		for range 5 {
			if _, err = two.Add(soon, 1); err != nil {
				t.Log(err)
				return false
			}
		}
		n, err := two.Number(soon)
		return err == nil && n == before+5
	}
	// A request that Soft-RoCE completes without its result ends the connection, and there is no
	// other one before the server goes on.
	ok := false
	for tries := 0; tries < 3 && !ok; tries++ {
		ok = changed()
	}
	require.True(t, ok)
	p.kill()
	p = start(t, p.address)
	other := dial(t, p.address, cache.Config{})
	_, err := sharedRecord(t, other, "another").Add(ctx, 1000) // where "one" was
	require.NoError(t, err)
	_, err = c.Get(ctx, key(1)) // until there is a connection to the next life
	require.ErrorIs(t, err, cache.ErrNotFound)
	n, err := one.Add(ctx, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// A cluster's names have their servers, as keys have: what one program changes the next one finds, also
// through a client of that server alone.
func TestSharedRecordsOfACluster(t *testing.T) {
	cfg := server.Config{Lease: quiet, Shared: server.SharedConfig{Records: 8}}
	one, two := serve(t, cfg), listen(t, cfg)
	servers := []*server.Server{one, two}
	addresses := []string{one.Addr().String(), two.Addr().String()}
	ctx := within(t)
	a, b := dialCluster(t, cache.ClusterConfig{}, addresses...), dialCluster(t, cache.ClusterConfig{}, addresses[1], addresses[0])
	of := map[string][]byte{}
	for i := 0; len(of) < len(servers); i++ {
		require.Less(t, i, 64, "chance of one in 2^62")
		of[a.Server(key(i)).Address()] = key(i)
	}
	for i, s := range servers {
		name := of[addresses[i]]
		first, err := a.Shared(name)
		require.NoError(t, err)
		n, err := first.Number(ctx)
		require.NoError(t, err)
		require.Zero(t, n, "nobody has changed it")
		// One that Soft-RoCE completes without its result may count or not.
		least, most := int64(0), int64(0)
		for range 3 {
			most++
			if _, err = first.Add(ctx, 1); err == nil {
				least++
			} else {
				require.ErrorIs(t, err, cache.ErrUnknown)
			}
		}
		second, err := b.Shared(name)
		require.NoError(t, err)
		n, err = second.Number(ctx)
		require.NoError(t, err)
		require.True(t, least <= n && n <= most, "%d, %d to %d", n, least, most)
		st := s.Stats().Shared
		require.Equal(t, [2]int{1, 8}, [2]int{st.Records, st.Most}, "names of the other server are not here")
		require.GreaterOrEqual(t, st.Clients, 2)
		mine := a.Server(name).Stats()
		require.Equal(t, [2]uint64{1, uint64(least)}, [2]uint64{mine.SharedReads, mine.SharedChanges})
	}
	_, err := a.Shared(nil)
	require.ErrorIs(t, err, cache.ErrKey)
	require.NoError(t, two.Close())
	gone, err := a.Shared(of[addresses[1]])
	require.NoError(t, err)
	for end := time.Now().Add(stuck); a.Server(of[addresses[1]]).Stats().Connected; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	_, err = gone.Add(ctx, 1)
	require.ErrorIs(t, err, cache.ErrUnavailable)
}

// Tenants of one address have shared records of their own, or none; no other tenant's key opens them,
// and they keep the one that they have.
func TestSharedRecordsOfTenants(t *testing.T) {
	lab.NoLeftovers(t)
	ctx, ends := within(t), lab.Require(t, 2)
	cfg := server.Config{Memory: 2 << 20, Lease: quiet}
	opted := cfg
	opted.Shared = server.SharedConfig{Records: 1}
	all, err := server.ListenTenants(ctx, netip.AddrPortFrom(ends[1].Addr, 0).String(), []server.Tenant{
		{Name: "red", Key: redKey, Config: opted}, {Name: "blue", Key: blueKey, Config: opted}, {Name: "green", Key: blueKey, Config: cfg},
	}, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- all.Serve(ctx) }()
	t.Cleanup(func() {
		require.NoError(t, all.Close())
		require.ErrorIs(t, <-done, server.ErrClosed)
	})
	of := func(name string, key []byte) *cache.Shared {
		return sharedRecord(t, dial(t, all.Addr().String(), cache.Config{Tenant: name, Key: key}), "visits")
	}
	red, blue := of("red", redKey), of("blue", blueKey)
	n, err := red.Add(ctx, 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	n, err = blue.Add(ctx, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	_, err = of("green", blueKey).Add(ctx, 1)
	require.ErrorIs(t, err, cache.ErrNoShared)
	require.ErrorIs(t, all.SetKey("red", blueKey), verbs.ErrUnsupported)
	require.NoError(t, all.SetKey("red", redKey), "it is the one that it has")
	require.NoError(t, all.SetKey("green", redKey))
	require.NoError(t, all.Revoke("red"))
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = red.Add(soon, 1)
	require.Error(t, err)
	n, err = blue.Number(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}
