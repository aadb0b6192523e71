//go:build linux

package cache_test

import (
	"context"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

// A copy is returned without a packet, until the server reports a change or is silent.
func TestNearCache(t *testing.T) {
	lab.NoLeftovers(t)
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	const stale = 2 * time.Second
	a := dial(t, p.address, cache.Config{NearBytes: 1 << 20, NearStale: stale})
	b, ctx := dial(t, p.address, cache.Config{}), within(t)
	require.NoError(t, b.Set(ctx, key(1), cache.Item{Value: []byte("old")}, 0))
	whole(t, a, 1)
	dst := make([]byte, 100)
	get := func() string {
		t.Helper()
		it, err := a.GetInto(ctx, key(1), dst)
		require.NoError(t, err)
		return string(it.Value)
	}
	require.Equal(t, "old", get())
	before := a.Stats()
	for range 100 {
		require.Equal(t, "old", get())
	}
	st := a.Stats()
	require.Equal(t, uint64(100), st.NearHits-before.NearHits)
	require.Equal(t, [2]uint64{before.Hits, before.Reads}, [2]uint64{st.Hits, st.Reads})

	require.NoError(t, b.Set(ctx, key(1), cache.Item{Value: []byte("new")}, 0))
	for changed := time.Now(); ; {
		begin := time.Since(changed)
		if get() == "new" {
			break
		}
		require.Less(t, begin, stale+time.Millisecond)
	}
	for range 100 {
		require.Equal(t, "new", get(), "and never old again")
	}

	// The server reports no changes: copies are too old after a while. READs are not.
	p.stop()
	stopped := time.Now()
	time.Sleep(stale + 100*time.Millisecond)
	before = a.Stats()
	require.Equal(t, "new", get())
	require.Equal(t, "new", get())
	st = a.Stats()
	require.Equal(t, [2]uint64{before.NearHits, before.Hits + 2}, [2]uint64{st.NearHits, st.Hits}, "%v", time.Since(stopped))
	p.signal(syscall.SIGCONT)
	for end := time.Now().Add(stuck); a.Stats().NearHits == st.NearHits; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "the server is heard again")
		require.Equal(t, "new", get())
	}
}

// With copies one client's reads do not go back in time, and see what it wrote itself; what
// others wrote they see in time.
func TestNearCacheUnderChanges(t *testing.T) {
	s := serve(t, server.Config{Lease: 2 * time.Second})
	const stale = time.Second
	a := dial(t, s.Addr().String(), cache.Config{NearBytes: 1 << 20, NearStale: stale})
	b, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	counter, own := key(1), key(2)
	require.NoError(t, b.Set(ctx, counter, cache.Item{Value: []byte("0")}, 0))
	var seen, acknowledged, since atomic.Int64 // the counter, and when it was acknowledged
	begin := time.Now()
	done := make(chan struct{})
	var all sync.WaitGroup
	for g := range 3 {
		all.Go(func() {
			dst := make([]byte, 100)
			var results []cache.Result
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				least := seen.Load()
				if ack, at := acknowledged.Load(), since.Load(); time.Since(begin)-time.Duration(at) > stale+time.Millisecond {
					least = max(least, ack)
				}
				var it cache.Item
				var err error
				if (i+g)%3 == 0 {
					results = a.GetMulti(ctx, [][]byte{counter}, results)
					it, err = results[0].Item, results[0].Err
				} else {
					it, err = a.GetInto(ctx, counter, dst)
				}
				if !assert.NoError(t, err) {
					return
				}
				n, err := strconv.ParseInt(string(it.Value), 10, 64)
				if !assert.NoError(t, err) || !assert.GreaterOrEqual(t, n, least) {
					return
				}
				for old := seen.Load(); old < n && !seen.CompareAndSwap(old, n); old = seen.Load() {
				}
			}
		})
	}
	for i := int64(1); time.Since(begin) < 5*time.Second; i++ {
		require.NoError(t, b.Set(ctx, counter, cache.Item{Value: strconv.AppendInt(nil, i, 10)}, 0))
		since.Store(int64(time.Since(begin))) // first: a reader that loads them the other way round expects too little
		acknowledged.Store(i)
		require.NoError(t, a.Set(ctx, own, cache.Item{Value: strconv.AppendInt(nil, i, 10)}, 0))
		for range 3 {
			it, err := a.Get(ctx, own)
			require.NoError(t, err)
			require.Equal(t, strconv.FormatInt(i, 10), string(it.Value))
		}
		time.Sleep(time.Duration(i%7) * 5 * time.Millisecond)
	}
	close(done)
	all.Wait()
	st := a.Stats()
	t.Logf("%d changes seen of %d: %+v", seen.Load(), acknowledged.Load(), st)
	require.Greater(t, st.NearHits, st.Reads)
	require.NotZero(t, seen.Load())
}

// A loader over a real cache: one load for all callers that miss, and hits for all later ones.
func TestLoader(t *testing.T) {
	s := serve(t, server.Config{Lease: time.Second})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	l := cache.NewLoader(c, cache.LoaderConfig{})
	var loads atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			it, err := l.Load(ctx, key(1), time.Hour, func(context.Context) (cache.Item, error) {
				loads.Add(1)
				time.Sleep(100 * time.Millisecond)
				return cache.Item{Value: []byte("loaded")}, nil
			})
			assert.NoError(t, err)
			assert.Equal(t, "loaded", string(it.Value))
		})
	}
	all.Wait()
	require.Equal(t, int32(1), loads.Load())
	it, err := c.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, "loaded", string(it.Value))
	left, err := c.TTL(ctx, key(1))
	require.NoError(t, err)
	require.InDelta(t, time.Hour.Seconds(), left.Seconds(), 60)
}
