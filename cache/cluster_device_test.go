//go:build linux

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

func dialCluster(t *testing.T, cfg cache.ClusterConfig, addresses ...string) *cache.Cluster {
	t.Helper()
	cfg.Config = near(t, cfg.Config)
	c, err := cache.DialCluster(within(t), addresses, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, c.Close(), "once more")
	})
	return c
}

// shares are the keys of each of a cluster's servers.
func shares(t *testing.T, c *cache.Cluster, keys [][]byte, addresses ...string) (out [][][]byte) {
	t.Helper()
	for _, address := range addresses {
		var share [][]byte
		for _, k := range keys {
			if c.Server(k).Address() == address {
				share = append(share, k)
			}
		}
		require.NotEmpty(t, share, "chance of one in 2^20 at least")
		out = append(out, share)
		whole(t, c.Server(share[0]), len(share))
	}
	return out
}

// Two servers have their shares of the keys. When one is killed its keys fail at once, and
// those of the other are hits, of a READ each, as before; when it comes back it is empty.
func TestClusterOutlivesAServer(t *testing.T) {
	lab.NoLeftovers(t)
	where := netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String()
	servers := []*process{start(t, where), start(t, where)}
	addresses := []string{servers[0].address, servers[1].address}
	c, ctx := dialCluster(t, cache.ClusterConfig{}, addresses...), within(t)
	const n = 40
	var keys [][]byte
	var puts []cache.Entry
	for i := range n {
		keys = append(keys, key(i))
		puts = append(puts, cache.Entry{Key: key(i), Item: cache.Item{Value: []byte(strconv.Itoa(i))}})
	}
	puts = append(puts, cache.Entry{})
	errs := c.SetMulti(ctx, puts, nil)
	require.Len(t, errs, n+1)
	for _, err := range errs[:n] {
		require.NoError(t, err)
	}
	require.ErrorIs(t, errs[n], cache.ErrKey)
	results := c.GetMulti(ctx, keys, nil)
	require.Len(t, results, n)
	for i, r := range results {
		require.NoError(t, r.Err)
		require.Equal(t, strconv.Itoa(i), string(r.Value))
		it, err := c.Server(keys[i]).Get(ctx, keys[i])
		require.NoError(t, err)
		require.Equal(t, r.Value, it.Value)
	}
	const alive, dead = 0, 1
	share := shares(t, c, keys, addresses...)
	kept, lost := share[alive], share[dead]
	servers[dead].kill()
	for end := time.Now().Add(stuck); c.Stats()[dead].Connected; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	require.Equal(t, addresses[dead], c.Stats()[dead].Address)
	require.ErrorIs(t, c.Stats()[dead].Err, cache.ErrUnavailable)
	require.NoError(t, c.Stats()[alive].Err)
	before := c.Stats()[alive]
	for _, k := range kept {
		_, err := c.Get(ctx, k)
		require.NoError(t, err)
	}
	for _, k := range lost {
		_, err := c.Get(ctx, k)
		require.ErrorIs(t, err, cache.ErrUnavailable)
		require.NotErrorIs(t, err, cache.ErrNotFound)
		require.ErrorContains(t, err, addresses[dead])
	}
	results = c.GetMulti(ctx, keys, results)
	for i, r := range results {
		if c.Server(keys[i]) == c.Server(kept[0]) {
			require.NoError(t, r.Err)
			require.Equal(t, strconv.Itoa(i), string(r.Value))
		} else {
			require.ErrorIs(t, r.Err, cache.ErrUnavailable)
			require.Empty(t, r.Value)
		}
	}
	st := c.Stats()[alive]
	require.Equal(t, [3]uint64{2 * uint64(len(kept)), 2 * uint64(len(kept)), 0}, [3]uint64{st.Hits - before.Hits, st.Reads - before.Reads, st.Calls - before.Calls})
	err := c.Set(ctx, lost[0], cache.Item{}, 0)
	require.ErrorIs(t, err, cache.ErrUnavailable)
	require.NotErrorIs(t, err, cache.ErrOutcomeUnknown)
	require.NoError(t, c.Set(ctx, kept[0], cache.Item{Value: []byte("new")}, 0))
	require.ErrorIs(t, c.FlushAll(ctx), cache.ErrUnavailable, "one of them was not flushed")

	// A program that starts now starts all the same.
	missing := dialCluster(t, cache.ClusterConfig{MissWhenDown: true}, addresses...)
	_, err = missing.GetInto(ctx, lost[0], nil)
	require.ErrorIs(t, err, cache.ErrNotFound)
	require.ErrorIs(t, err, cache.ErrUnavailable)
	for _, r := range missing.GetMulti(ctx, lost, nil) {
		require.ErrorIs(t, r.Err, cache.ErrNotFound)
	}
	err = missing.Delete(ctx, lost[0])
	require.ErrorIs(t, err, cache.ErrUnavailable)
	require.NotErrorIs(t, err, cache.ErrNotFound)

	back := start(t, addresses[dead])
	for _, c := range []*cache.Cluster{c, missing} {
		for end := time.Now().Add(stuck); !c.Stats()[dead].Connected; time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(end))
		}
		_, err = c.Get(ctx, lost[0])
		require.ErrorIs(t, err, cache.ErrNotFound)
		require.NotErrorIs(t, err, cache.ErrUnavailable)
	}
	require.NoError(t, c.Set(ctx, lost[0], cache.Item{Value: []byte("again")}, 0))
	it, err := missing.Get(ctx, lost[0])
	require.NoError(t, err)
	require.Equal(t, "again", string(it.Value))
	require.Equal(t, uint64(2), c.Stats()[dead].Sessions)
	require.Equal(t, uint64(1), c.Stats()[alive].Sessions)
	require.NoError(t, c.FlushAll(ctx))
	_, err = missing.Get(ctx, lost[0])
	require.ErrorIs(t, err, cache.ErrNotFound)
	back.signal(syscall.SIGTERM)
	require.NoError(t, <-back.ended)
}

// What goes to several servers goes to all at once: over a long wire it takes one round
// trip, not one for each server.
func TestClusterAsksAllAtOnce(t *testing.T) {
	cfg := server.Config{Lease: quiet} // nothing else is under way
	addresses := []string{serve(t, cfg).Addr().String(), listen(t, cfg).Addr().String()}
	c, ctx := dialCluster(t, cache.ClusterConfig{}, addresses...), within(t)
	var keys [][]byte
	var puts []cache.Entry
	for i := range 20 {
		keys = append(keys, key(i))
		puts = append(puts, cache.Entry{Key: key(i), Item: cache.Item{Value: bytes.Repeat([]byte{1}, 50)}})
	}
	for _, err := range c.SetMulti(ctx, puts, nil) {
		require.NoError(t, err)
	}
	shares(t, c, keys, addresses...)   // both have some
	const trip = 40 * time.Millisecond // well below the time after which packets go again
	lab.ImpairWire(t, lab.Impairment{Delay: trip / 2})
	best := func(do func() error) time.Duration { // of as many as a busy machine needs
		t.Helper()
		best := time.Hour
		for n := 0; n < 5 || n < 50 && best >= 2*trip; n++ {
			time.Sleep(4 * trip) // horizons and deltas of before have come and gone
			begin := time.Now()
			require.NoError(t, do())
			best = min(best, time.Since(begin))
		}
		require.GreaterOrEqual(t, best, trip, "the wire is long")
		return best
	}
	before := c.Stats()
	require.Less(t, best(func() error {
		for _, r := range c.GetMulti(ctx, keys, nil) {
			if r.Err != nil {
				return r.Err
			}
		}
		return nil
	}), 2*trip)
	for i, st := range c.Stats() {
		require.Equal(t, before[i].Calls, st.Calls)
	}
}

// A server with a process that hangs holds up its own keys, and no other's: whichever it is, and
// whether all of it has to be asked or told.
func TestClusterWithAServerThatHangs(t *testing.T) {
	lab.NoLeftovers(t)
	where := netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String()
	servers := []*process{start(t, where), start(t, where)}
	addresses := []string{servers[0].address, servers[1].address}
	c, ctx := dialCluster(t, cache.ClusterConfig{}, addresses...), within(t)
	var keys, unknown [][]byte
	var puts []cache.Entry
	for i := range 20 {
		keys, unknown = append(keys, key(i)), append(unknown, key(100+i))
		puts = append(puts, cache.Entry{Key: key(i), Item: cache.Item{Value: []byte{byte(i)}}})
	}
	require.NoError(t, errors.Join(c.SetMulti(ctx, puts, nil)...))
	shares(t, c, keys, addresses...)
	for i, p := range servers {
		p.stop()
		short, cancel := context.WithTimeout(ctx, 800*time.Millisecond)
		errs := c.SetMulti(short, puts, nil)
		cancel()
		short, cancel = context.WithTimeout(ctx, 800*time.Millisecond)
		misses := c.GetMulti(short, unknown, nil)
		cancel()
		for k, err := range errs {
			if c.Server(keys[k]).Address() == addresses[i] {
				require.ErrorIs(t, err, cache.ErrOutcomeUnknown)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			} else {
				require.NoError(t, err)
			}
		}
		for k, r := range misses {
			if c.Server(unknown[k]).Address() == addresses[i] {
				require.ErrorIs(t, r.Err, context.DeadlineExceeded)
			} else {
				require.ErrorIs(t, r.Err, cache.ErrNotFound)
			}
		}
		p.signal(syscall.SIGCONT)
		require.NoError(t, errors.Join(c.SetMulti(ctx, puts, nil)...))
	}
}
