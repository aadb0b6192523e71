//go:build linux

package cache_test

import (
	"context"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/lab"
)

// Hits go on while the server's process is stopped, and calls when it goes on.
func TestHitsWhileTheServerIsStopped(t *testing.T) {
	lab.NoLeftovers(t)
	const term = 3 * time.Second // in a second a busy host may leave the client no time to reply in half of it
	t.Setenv(lease, term.String())
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	c, ctx := dial(t, p.address, cache.Config{}), within(t)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("value")}, 0))
	whole(t, c, 1)
	require.NoError(t, c.Set(ctx, key(2), cache.Item{Value: []byte("value")}, 0))
	whole(t, c, 2)
	small := dial(t, p.address, cache.Config{MapBytes: 1})
	require.Eventually(t, func() bool { return small.Stats().Entries == 1 }, stuck, time.Millisecond)
	p.stop()
	for i := range 20 { // by the server's own map
		it, err := small.Get(ctx, key(1+i%2))
		require.NoError(t, err)
		require.Equal(t, "value", string(it.Value))
		_, err = small.Get(ctx, key(100+i))
		require.ErrorIs(t, err, cache.ErrNotFound, "misses too")
	}
	require.Zero(t, small.Stats().Calls)
	// Calls wait, also many more than the server has room for.
	hasty, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			err := c.Set(hasty, key(3), cache.Item{Value: make([]byte, 3000)}, 0)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, cache.ErrOutcomeUnknown)
		})
	}
	calls.Wait()
	before, dst := c.Stats(), make([]byte, 100)
	for begin := time.Now(); time.Since(begin) < term+term/5; {
		it, err := c.GetInto(ctx, key(1), dst)
		require.NoError(t, err)
		require.Equal(t, "value", string(it.Value))
	}
	st := c.Stats()
	require.Greater(t, st.Hits-before.Hits, uint64(20))
	require.Equal(t, st.Hits-before.Hits, st.Reads-before.Reads)
	require.Equal(t, before.Calls, st.Calls)
	short, cancel2 := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel2()
	_, err := c.Get(short, key(4))
	require.ErrorIs(t, err, context.DeadlineExceeded, "nobody says that there is none")
	err = c.Set(short, key(3), cache.Item{}, 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	p.signal(syscall.SIGCONT)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("another")}, 0))
	it, err := c.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, "another", string(it.Value))
	it, err = c.Get(ctx, key(3))
	require.NoError(t, err)
	require.Len(t, it.Value, 3000, "what was on its way was carried out")
	require.Equal(t, uint64(1), c.Stats().Sessions, "the connection outlived it")
}

// A server that is killed and comes back is another one: nothing of before is a hit.
func TestServerIsKilledAndComesBack(t *testing.T) {
	lab.NoLeftovers(t)
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	c, ctx := dial(t, p.address, cache.Config{}), within(t)
	for i := range 20 {
		require.NoError(t, c.Set(ctx, key(i), cache.Item{Value: []byte(strconv.Itoa(i))}, 0))
	}
	whole(t, c, 20)
	before, err := c.Get(ctx, key(0))
	require.NoError(t, err)
	epoch := c.Stats().Epoch
	p.kill()
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err = c.Get(short, key(1))
	require.ErrorIs(t, err, context.DeadlineExceeded, "there is no server")
	require.False(t, c.Stats().Connected)

	q := start(t, p.address)
	_, err = c.Get(ctx, key(1))
	require.ErrorIs(t, err, cache.ErrNotFound)
	require.NotEqual(t, epoch, c.Stats().Epoch)
	require.Equal(t, uint64(2), c.Stats().Sessions)
	require.NoError(t, c.Set(ctx, key(0), cache.Item{Value: []byte("new")}, 0))
	err = c.CompareAndSwap(ctx, key(0), cache.Item{Value: []byte("of before"), CAS: before.CAS}, 0)
	require.ErrorIs(t, err, cache.ErrChanged, "a CAS number of before is none of now")
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("new")}, 0))
	it, err := c.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, "new", string(it.Value))

	q.signal(syscall.SIGTERM)
	require.NoError(t, <-q.ended, "it ends in peace, its client still connected")
}
