//go:build linux

package cache_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
)

// Many records at once: each has its own outcome, and the requests share SENDs.
func TestSetMulti(t *testing.T) {
	s := serve(t, server.Config{Memory: 8 << 20, MaxValue: 64 << 10, Lease: quiet})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	const n = 30 // of which a SEND of 4 KiB holds some 20
	var puts []cache.Entry
	for i := range n {
		puts = append(puts, cache.Entry{Key: key(i), Item: cache.Item{Value: bytes.Repeat([]byte{byte(i)}, 100), Flags: uint32(i)}, TTL: time.Duration(i) * time.Hour})
	}
	packets := watch(t)
	packets.take()
	before := c.Stats()
	errs := c.SetMulti(ctx, puts, nil)
	require.Len(t, errs, n)
	for _, err := range errs {
		require.NoError(t, err)
	}
	fromClient := 0
	for k, n := range packets.take() {
		if k[1] == 0 && k[0] >= 2 && k[0] <= sendLast { // the last packet, or the only one
			fromClient += n
		}
	}
	// Two, and as many as it takes to say how far this client is while the server works.
	require.LessOrEqual(t, fromClient, n/3, "SENDs for %d requests", n)
	require.Equal(t, before.Calls+n, c.Stats().Calls)
	whole(t, c, n)
	for i := range n {
		it, err := c.Get(ctx, key(i))
		require.NoError(t, err)
		require.Equal(t, puts[i].Value, it.Value)
		require.Equal(t, uint32(i), it.Flags)
		left, err := c.TTL(ctx, key(i))
		require.NoError(t, err)
		require.InDelta(t, puts[i].TTL.Seconds(), left.Seconds(), 60)
	}

	// Each its own outcome.
	puts = []cache.Entry{
		{Key: key(1), Item: cache.Item{Value: []byte("new")}},
		{Item: cache.Item{Value: []byte("no key")}},
		{Key: key(2), Item: cache.Item{Value: make([]byte, 64<<10+1)}},
		{Key: key(n)},
	}
	errs = c.SetMulti(ctx, puts, errs)
	require.Len(t, errs, 4)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], cache.ErrKey)
	require.ErrorIs(t, errs[2], cache.ErrTooLarge)
	require.NoError(t, errs[3])
	it, err := c.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, "new", string(it.Value))
	it, err = c.Get(ctx, key(2))
	require.NoError(t, err)
	require.Len(t, it.Value, 100, "what was there is there")

	// More than waits to be sent at a time.
	puts = puts[:0]
	for i := range 50 {
		puts = append(puts, cache.Entry{Key: key(i), Item: cache.Item{Value: bytes.Repeat([]byte{byte(i)}, 50_000)}})
	}
	for _, err := range c.SetMulti(ctx, puts, errs) {
		require.NoError(t, err)
	}
	for i := range puts {
		it, err := c.Get(ctx, key(i))
		require.NoError(t, err)
		require.True(t, bytes.Equal(puts[i].Value, it.Value), i)
	}

	require.Empty(t, c.SetMulti(ctx, nil, nil))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range c.SetMulti(ended, puts, nil) {
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, cache.ErrOutcomeUnknown)
	}
	require.NoError(t, c.Close())
	for _, err := range c.SetMulti(ctx, puts, nil) {
		require.ErrorIs(t, err, cache.ErrClosed)
	}
}

// What no memory is left for says so, and the rest is stored.
func TestSetMultiWithoutMemory(t *testing.T) {
	s := serve(t, server.Config{Memory: 1 << 20})
	c, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	var puts []cache.Entry
	for i := range 60 { // three times what fits: old ones are evicted, and wait in quarantine
		puts = append(puts, cache.Entry{Key: key(i), Item: cache.Item{Value: make([]byte, 50_000)}})
	}
	for i, err := range c.SetMulti(ctx, puts, nil) {
		if err != nil {
			require.ErrorIs(t, err, cache.ErrNoMemory, i)
		}
	}
	require.NoError(t, c.Set(ctx, key(0), cache.Item{Value: make([]byte, 50_000)}, 0))
}
