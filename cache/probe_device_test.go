//go:build linux

package cache_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
)

// A client with less memory than the map takes READs the server's: a hit is a READ of a
// bucket, or of two, and one of the record, and a miss is one or two; there is no message.
func TestHitByBuckets(t *testing.T) {
	const n, budget = 400, 4096
	s := serve(t, server.Config{Lease: quiet})
	for i := range n {
		set(t, s, key(i), key(i))
	}
	c, ctx := dial(t, s.Addr().String(), cache.Config{MapBytes: budget}), within(t)
	require.Eventually(t, func() bool { return c.Stats().Entries >= 100 }, stuck, time.Millisecond)
	dst := make([]byte, 64)
	before, gone := c.Stats(), 0
	require.False(t, before.Whole)
	require.LessOrEqual(t, before.MapBytes, budget)
	for i := range n {
		it, err := c.GetInto(ctx, key(i), dst)
		if errors.Is(err, cache.ErrNotFound) { // its buckets were full, now and then
			gone++
			continue
		}
		require.NoError(t, err)
		require.Equal(t, string(key(i)), string(it.Value))
	}
	require.LessOrEqual(t, gone, 3)
	for i := range 100 {
		_, err := c.Get(ctx, key(n+i))
		require.ErrorIs(t, err, cache.ErrNotFound)
	}
	st := c.Stats()
	require.Equal(t, before.Calls, st.Calls, "no message")
	require.Equal(t, uint64(n-gone), st.Hits-before.Hits)
	require.Equal(t, uint64(100+gone), st.Misses-before.Misses)
	probes := st.Probes - before.Probes
	require.Greater(t, probes, uint64(n/2))
	require.Less(t, probes, uint64(n+100), "what has an entry needs none")
	require.LessOrEqual(t, st.Reads-before.Reads, uint64(n-gone)+probes*13/10+100, "most are in their first bucket")
	require.LessOrEqual(t, st.MapBytes, budget)
	require.Equal(t, before.Refused, st.Refused)

	key200 := make([][]byte, 200)
	for i := range key200 {
		key200[i] = key(i)
	}

	// What was found has an entry then, until that is needed for another one.
	before = c.Stats()
	for range 10 {
		_, err := c.GetInto(ctx, key(n-1), dst)
		require.NoError(t, err)
	}
	st = c.Stats()
	require.Equal(t, []uint64{10, 0}, []uint64{st.Reads - before.Reads, st.Probes - before.Probes})

	i := 0
	allocatesNothing(t, 200, func() {
		if _, err := c.GetInto(ctx, key200[i%200], dst); err != nil && !errors.Is(err, cache.ErrNotFound) {
			t.Fatal(err)
		}
		i++
	})

	// Many keys at once: the buckets of all, then the records of those that are there.
	for i := range 100 {
		key200 = append(key200, key(n+i))
	}
	one := dial(t, s.Addr().String(), cache.Config{MapBytes: 1})
	require.Eventually(t, func() bool { return one.Stats().Entries == 1 }, stuck, time.Millisecond)
	results := one.GetMulti(ctx, key200, nil)
	hits := 0
	for i, r := range results {
		if errors.Is(r.Err, cache.ErrNotFound) {
			continue
		}
		require.NoError(t, r.Err)
		require.Less(t, i, 200)
		require.Equal(t, string(key(i)), string(r.Value))
		hits++
	}
	require.GreaterOrEqual(t, hits, 197)
	st = one.Stats()
	require.Equal(t, []uint64{0, uint64(hits), uint64(300 - hits), 0}, []uint64{st.Calls, st.Hits, st.Misses, st.Refused})
	require.GreaterOrEqual(t, st.Probes, uint64(299), "the map has one entry")
	require.LessOrEqual(t, st.Reads, uint64(hits)+200*13/10+2*100)
	allocatesNothing(t, 20, func() { results = one.GetMulti(ctx, key200[:64], results) })

	// A map that fits is whole, also when more comes.
	all := dial(t, s.Addr().String(), cache.Config{MapBytes: 1 << 20})
	whole(t, all, s.Stats().Items)
	set(t, s, key(n), nil)
	whole(t, all, s.Stats().Items)
	_, err := all.Get(ctx, key(0))
	require.NoError(t, err)
	require.Zero(t, all.Stats().Probes)
}

// A client without a map READs a bucket, or two, and the record, each time. It is told no change and sees all of
// them, and takes no memory. Then it has a map, and no longer.
func TestGetsWithoutAMap(t *testing.T) {
	const n = 100
	s := serve(t, server.Config{Lease: quiet})
	for i := range n {
		set(t, s, key(i), key(i))
	}
	c, ctx := dial(t, s.Addr().String(), cache.Config{MapBytes: -1}), within(t)
	probing := func(want bool) {
		t.Helper()
		require.Eventually(t, func() bool { return c.Stats().Probing == want && s.Stats().Modes[server.ModeNone] == 1 == want }, stuck, time.Millisecond)
	}
	probing(true)
	before := c.Stats()
	require.Equal(t, [2]int{}, [2]int{before.Entries, before.MapBytes})
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = key(i)
		it, err := c.Get(ctx, key(i))
		require.NoError(t, err)
		require.Equal(t, string(key(i)), string(it.Value))
		set(t, s, key(i), []byte("new"))
		if it, err = c.Get(ctx, key(i)); err == nil {
			require.Equal(t, "new", string(it.Value))
		}
		require.NoError(t, err)
	}
	for _, r := range c.GetMulti(ctx, keys, nil) {
		require.NoError(t, r.Err)
		require.Equal(t, "new", string(r.Value))
	}
	_, err := c.Get(ctx, key(n))
	require.ErrorIs(t, err, cache.ErrNotFound)
	st := c.Stats()
	require.Equal(t, []uint64{3 * n, 3*n + 1, 0, 0}, []uint64{st.Hits - before.Hits, st.Probes - before.Probes, st.Calls - before.Calls, st.Refused})
	require.GreaterOrEqual(t, st.Reads-before.Reads, uint64(6*n))
	require.LessOrEqual(t, st.Reads-before.Reads, uint64(9*n+2))
	require.Zero(t, st.Entries)

	c.Switch(wire.Streamed)
	probing(false)
	set(t, s, key(0), []byte("newest"))
	it, err := c.Get(ctx, key(0))
	require.NoError(t, err)
	require.Equal(t, "newest", string(it.Value))
	c.Switch(wire.Probed)
	probing(true)
	require.Zero(t, c.Stats().Entries)
}

// endsAfter is a context that ends when it has been asked so often.
type endsAfter struct {
	context.Context
	left atomic.Int32
	done chan struct{}
}

func (c *endsAfter) Done() <-chan struct{} { return c.done }

func (c *endsAfter) Err() error {
	if n := c.left.Add(-1); n > 0 {
		return nil
	} else if n == 0 {
		close(c.done)
	}
	return context.DeadlineExceeded
}

// A client that does not know yet of a change finds a tombstone, and what there is now by one READ more: the
// tombstone says where. No message is sent, the server's own map is not READ, and the client's knows.
func TestChangedRecords(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	const n = 8
	for i := range n {
		set(t, s, key(i), key(i))
	}
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	whole(t, c, n)
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = key(i)
	}
	var results []cache.Result
	unasked := func(keys [][]byte, read func(value string)) (before, st cache.Stats) {
		t.Helper()
		before = c.Stats()
		for i := 0; c.Stats().Refused == before.Refused; i++ { // it may hear of changes just then
			require.NoError(t, ctx.Err())
			value := strconv.Itoa(i)
			for _, k := range keys {
				set(t, s, k, []byte(value))
			}
			read(value)
		}
		st = c.Stats()
		require.Equal(t, before.Calls, st.Calls)
		require.Equal(t, before.Probes, st.Probes)
		require.True(t, st.Whole)
		return before, st
	}
	stale := func(read func(value string)) {
		t.Helper()
		before, st := unasked(keys, read)
		require.Greater(t, st.Forwarded, before.Forwarded)
	}
	stale(func(value string) {
		for _, k := range keys {
			it, err := c.Get(ctx, k)
			require.NoError(t, err)
			require.Equal(t, value, string(it.Value))
		}
	})
	stale(func(value string) {
		results = c.GetMulti(ctx, keys, results)
		for i := range results {
			require.NoError(t, results[i].Err)
			require.Equal(t, value, string(results[i].Value))
		}
	})
	// What is there now is longer than the room that there is: nothing of it is written.
	stale(func(value string) {
		dst := []byte("xxxxxxxx")
		for _, k := range keys {
			it, err := c.GetInto(ctx, k, dst[:len(value)-1])
			require.ErrorIs(t, err, cache.ErrShort)
			require.Empty(t, it.Value)
			require.Equal(t, "xxxxxxxx", string(dst))
		}
	})
	// A context that ends on the way, wherever that is, ends that call, and nothing else: the next one goes on
	// from there.
	sessions := c.Stats().Sessions
	for asked := int32(1); asked < 24; asked++ {
		cut := func() context.Context {
			short := &endsAfter{Context: ctx, done: make(chan struct{})}
			short.left.Store(asked)
			return short
		}
		unasked(keys[:1], func(value string) {
			it, err := c.Get(cut(), keys[0])
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				it, err = c.Get(ctx, keys[0])
			}
			require.NoError(t, err)
			require.Equal(t, value, string(it.Value))
		})
		unasked(keys[:2], func(value string) {
			ended := c.GetMulti(cut(), keys[:2], nil)
			for i, r := range c.GetMulti(ctx, keys[:2], nil) {
				if ended[i].Err != nil {
					require.ErrorIs(t, ended[i].Err, context.DeadlineExceeded)
				}
				require.NoError(t, r.Err)
				require.Equal(t, value, string(r.Value))
			}
		})
	}
	require.Equal(t, sessions, c.Stats().Sessions)
	// The last tombstones of a key all lead to what is there. One of what was deleted leads nowhere: the server's own
	// map has what was stored then. And those that lead from one to the next for too long are left for that.
	remove := func(k []byte) {
		_, err := s.Do(ctx, &kv.Request{Op: kv.OpDelete, Key: k})
		require.NoError(t, err)
	}
	again := func(times int) func(k []byte) {
		return func(k []byte) {
			for range times {
				set(t, s, k, []byte("new"))
			}
		}
	}
	for name, change := range map[string]func(k []byte){
		"deleted":            func(k []byte) { remove(k); set(t, s, k, []byte("new")) },
		"changed some times": again(5),
		"changed often":      again(40),
	} {
		for _, many := range []bool{false, true} {
			// The client may hear of some of a round's changes before it READs. Then it finds less to follow,
			// and the round is not judged.
			for heard := true; heard; {
				require.NoError(t, ctx.Err(), name)
				before := c.Stats()
				for _, k := range keys {
					change(k)
				}
				if many {
					results = c.GetMulti(ctx, keys, results)
				}
				for i, k := range keys {
					if !many {
						results[i].Item, results[i].Err = c.Get(ctx, k)
					}
					require.NoError(t, results[i].Err, name)
					require.Equal(t, "new", string(results[i].Value), name)
				}
				st := c.Stats()
				probes, forwarded := st.Probes-before.Probes, st.Forwarded-before.Forwarded
				if name == "changed some times" {
					heard = forwarded == 0 || probes > 0
				} else {
					heard = probes == 0
				}
				heard = heard || st.Calls != before.Calls
			}
		}
	}
	// What was deleted is a miss, whether READs or a call find that.
	for _, k := range keys {
		remove(k)
	}
	for _, k := range keys[:n/2] {
		_, err := c.Get(ctx, k)
		require.ErrorIs(t, err, cache.ErrNotFound)
	}
	results = c.GetMulti(ctx, keys, results)
	for i := range results {
		require.ErrorIs(t, results[i].Err, cache.ErrNotFound)
	}
}
