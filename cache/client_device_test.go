//go:build linux

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
)

// A hit is one READ and nothing else: no message goes either way.
func TestHitIsOneREAD(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	value := bytes.Repeat([]byte("v"), 300)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: value, Flags: 7}, 0))
	whole(t, c, 1)
	packets := watch(t)
	packets.take()
	before := c.Stats()
	const n = 50
	hitEach(t, c, n, value)
	seen := packets.take()
	require.Equal(t, map[[2]byte]int{{readRequest, 0}: n, {readResponse, 1}: n}, seen, "opcode and direction of all packets")
	st := c.Stats()
	require.Equal(t, [4]uint64{n, n, 0, 0}, [4]uint64{st.Hits - before.Hits, st.Reads - before.Reads, st.Calls - before.Calls, st.Confirmed - before.Confirmed})
	require.Zero(t, s.Stats().Gets, "the server's program knows of none")

	// The instrument sees SENDs when there are some.
	_, err := c.Get(ctx, key(2))
	require.ErrorIs(t, err, cache.ErrNotFound)
	seen = packets.take()
	require.Equal(t, 2, sends(seen), "a miss is confirmed: request and reply: %v", seen)
	require.Zero(t, seen[[2]byte{readRequest, 0}])
}

// A hit allocates nothing.
func TestGetIntoDoesNotAllocate(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	k, dst := key(1), make([]byte, 2000)
	require.NoError(t, c.Set(ctx, k, cache.Item{Value: make([]byte, 1500)}, 0))
	whole(t, c, 1)
	get := func() {
		if _, err := c.GetInto(ctx, k, dst); err != nil {
			t.Fatal(err)
		}
	}
	get()
	before := c.Stats()
	allocatesNothing(t, 200, get)
	st := c.Stats()
	require.Equal(t, st.Reads-before.Reads, st.Hits-before.Hits)
	require.Equal(t, before.Calls, st.Calls)
}

// All calls, seen by the client that made them and by another one, whatever their ways.
func TestCalls(t *testing.T) {
	s := serve(t, server.Config{Lease: time.Second, DC: server.DCConfig{Responders: 4}})
	i := initiator(t, 2)
	byRDMA := func() *cache.Client { return dial(t, s.Addr().String(), cache.Config{}) }
	through := func() *cache.Client { return dial(t, s.Addr().String(), cache.Config{DC: i}) }
	byTCP := func() *cache.Client {
		c, err := cache.Dial(within(t), s.Addr().String(), cache.Config{Dialer: tcpOnly()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	for _, pair := range [][2]func() *cache.Client{{byRDMA, byRDMA}, {through, byRDMA}, {byTCP, through}, {through, through}} {
		a, b := pair[0](), pair[1]()
		t.Run(fmt.Sprint(a.Stats().Transport, " and ", b.Stats().Transport), func(t *testing.T) { allCalls(t, a, b) })
	}
}

func allCalls(t *testing.T, a, b *cache.Client) {
	ctx := within(t)
	is := func(k []byte, want string) cache.Item {
		t.Helper()
		for _, c := range []*cache.Client{a, b} {
			it, err := c.Get(ctx, k)
			require.NoError(t, err)
			require.Equal(t, want, string(it.Value))
		}
		it, err := a.Get(ctx, k)
		require.NoError(t, err)
		return it
	}
	gone := func(k []byte) {
		t.Helper()
		for _, c := range []*cache.Client{a, b} {
			_, err := c.Get(ctx, k)
			require.ErrorIs(t, err, cache.ErrNotFound)
		}
	}
	item := func(v string) cache.Item { return cache.Item{Value: []byte(v)} }
	k := key(1)
	gone(k)
	require.ErrorIs(t, a.Replace(ctx, k, item("x"), 0), cache.ErrNotStored)
	require.ErrorIs(t, a.Append(ctx, k, []byte("x")), cache.ErrNotStored)
	require.ErrorIs(t, a.Delete(ctx, k), cache.ErrNotFound)
	require.ErrorIs(t, a.CompareAndSwap(ctx, k, cache.Item{CAS: 5}, 0), cache.ErrNotFound)
	require.NoError(t, a.Add(ctx, k, item("one"), 0))
	is(k, "one")
	require.ErrorIs(t, b.Add(ctx, k, item("two"), 0), cache.ErrNotStored)
	require.NoError(t, b.Replace(ctx, k, item("two"), 0))
	it := is(k, "two")
	require.NoError(t, a.Append(ctx, k, []byte(" and")))
	require.NoError(t, a.Prepend(ctx, k, []byte("one, ")))
	is(k, "one, two and")
	it.Value = []byte("late")
	require.ErrorIs(t, b.CompareAndSwap(ctx, k, it, 0), cache.ErrChanged)
	it = is(k, "one, two and")
	it.Value = []byte("swapped")
	require.NoError(t, b.CompareAndSwap(ctx, k, it, 0))
	is(k, "swapped")
	_, err := a.Increment(ctx, k, 1)
	require.ErrorIs(t, err, cache.ErrNotNumeric)
	require.NoError(t, a.Delete(ctx, k))
	gone(k)

	require.NoError(t, a.Set(ctx, k, item("41"), 0))
	n, err := b.Increment(ctx, k, 1)
	require.NoError(t, err)
	require.Equal(t, uint64(42), n)
	n, err = a.Decrement(ctx, k, 100)
	require.NoError(t, err)
	require.Zero(t, n)
	is(k, "0 ")

	require.NoError(t, a.Set(ctx, key(2), cache.Item{Flags: 9}, 0), "no value")
	require.Equal(t, uint32(9), is(key(2), "").Flags)
	require.NoError(t, b.FlushAll(ctx))
	gone(k)
	gone(key(2))
	require.ErrorIs(t, a.Set(ctx, nil, item("x"), 0), cache.ErrKey)
	_, err = a.Get(ctx, make([]byte, 251))
	require.ErrorIs(t, err, cache.ErrKey)
}

// What has expired by the server's clock is no hit, and a record that is touched stays.
func TestExpiry(t *testing.T) {
	s := serve(t, server.Config{Lease: time.Second})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	const ttl = 400 * time.Millisecond
	begin := time.Now()
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("v")}, ttl))
	require.NoError(t, c.Set(ctx, key(2), cache.Item{Value: []byte("v")}, ttl))
	require.NoError(t, c.Touch(ctx, key(2), time.Hour))
	left, err := c.TTL(ctx, key(2))
	require.NoError(t, err)
	require.InDelta(t, time.Hour.Seconds(), left.Seconds(), 30)
	require.NoError(t, c.Touch(ctx, key(2), 0))
	left, err = c.TTL(ctx, key(2))
	require.NoError(t, err)
	require.Zero(t, left)
	for {
		before := time.Since(begin)
		_, err := c.Get(ctx, key(1))
		if err != nil {
			require.ErrorIs(t, err, cache.ErrNotFound)
			require.GreaterOrEqual(t, time.Since(begin), ttl)
			break
		}
		require.Less(t, before, ttl+stuck/2, "it never expires")
	}
	_, err = c.TTL(ctx, key(1))
	require.ErrorIs(t, err, cache.ErrNotFound)
	_, err = c.Get(ctx, key(2))
	require.NoError(t, err)
}

// Values of all sizes, up to what the server takes.
func TestSizes(t *testing.T) {
	s := serve(t, server.Config{Memory: 24 << 20, MaxValue: 1 << 20, Lease: quiet})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	small := dial(t, s.Addr().String(), cache.Config{MaxRecord: 100})
	for _, n := range []int{0, 1, 15, 16, 64, 4095, 4096, 5000, 100_000, 1 << 20} {
		value := make([]byte, n)
		for i := range value {
			value[i] = byte(i * i >> 3)
		}
		k := key(n)
		require.NoError(t, c.Set(ctx, k, cache.Item{Value: value}, 0), n)
		hits := c.Stats().Hits
		it, err := c.Get(ctx, k)
		require.NoError(t, err, n)
		require.True(t, bytes.Equal(value, it.Value), n)
		require.Equal(t, hits+1, c.Stats().Hits, "by a READ: %d", n)
		it, err = small.Get(ctx, k)
		require.NoError(t, err, n)
		require.True(t, bytes.Equal(value, it.Value), n)
		if n > 0 {
			_, err = c.GetInto(ctx, k, make([]byte, n-1))
			require.ErrorIs(t, err, cache.ErrShort)
		}
	}
	require.ErrorIs(t, c.Set(ctx, key(1), cache.Item{Value: make([]byte, 1<<20+1)}, 0), cache.ErrTooLarge)
	it, err := c.Get(ctx, key(1))
	require.NoError(t, err)
	require.Len(t, it.Value, 1, "what was there is there")
}

// A client that comes later gets the map in parts, and changes between them.
func TestSnapshotAndDeltas(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet}) // a client that is cut off makes calls until it has the map again
	ctx := within(t)
	const n = 3000
	set := func(from, to int) { // from the server's own process, which is faster
		for i := from; i < to; i++ {
			a, err := s.Do(ctx, &kv.Request{Op: kv.OpSet, Key: key(i), Value: strconv.AppendInt(nil, int64(i), 10)})
			require.NoError(t, err)
			require.Equal(t, kv.OK, a.Status)
		}
	}
	set(0, n)
	b := dial(t, s.Addr().String(), cache.Config{})
	set(n, n+200)
	items := s.Stats().Items
	require.InDelta(t, n+200, items, 3, "now and then the buckets of a key are full")
	whole(t, b, items)
	part := dial(t, s.Addr().String(), cache.Config{MapBytes: 100 * 30})
	missing := 0
	for i := 0; i < n+200; i += 37 {
		for _, c := range []*cache.Client{b, part} {
			it, err := c.Get(ctx, key(i))
			if errors.Is(err, cache.ErrNotFound) && items < n+200 {
				missing++
				continue
			}
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(i), string(it.Value))
		}
	}
	require.LessOrEqual(t, missing, 2*(n+200-items))
	require.LessOrEqual(t, b.Stats().Calls, uint64(missing), "the map has everything")
	st := part.Stats()
	require.LessOrEqual(t, st.Entries, 100)
	require.NotZero(t, st.Confirmed)
	require.Positive(t, st.MapBytes)
}

// After Close everything returns ErrClosed, and contexts end calls.
func TestClosedAndContexts(t *testing.T) {
	s := serve(t, server.Config{Lease: time.Second})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := c.Get(ended, key(1))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, c.Set(ended, key(1), cache.Item{}, 0), context.Canceled)
	_, err = cache.Dial(ended, s.Addr().String(), near(t, cache.Config{}))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, c.Close())
	_, err = c.Get(ctx, key(1))
	require.ErrorIs(t, err, cache.ErrClosed)
	_, err = c.GetInto(ctx, key(1), nil)
	require.ErrorIs(t, err, cache.ErrClosed)
	_, err = c.TTL(ctx, key(1))
	require.ErrorIs(t, err, cache.ErrClosed)
	_, err = c.Increment(ctx, key(1), 1)
	require.ErrorIs(t, err, cache.ErrClosed)
	for _, err := range []error{c.Set(ctx, key(1), cache.Item{}, 0), c.Delete(ctx, key(1)), c.FlushAll(ctx), c.Touch(ctx, key(1), 0), c.Append(ctx, key(1), nil)} {
		require.ErrorIs(t, err, cache.ErrClosed)
	}
	require.False(t, c.Stats().Connected)
	require.NoError(t, s.Close())
	_, err = s.Do(ctx, nil)
	require.ErrorIs(t, err, server.ErrClosed)
	require.ErrorIs(t, s.Serve(ctx), server.ErrClosed)
	require.Zero(t, s.Stats())
}
