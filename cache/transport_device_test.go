//go:build linux

package cache_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

// lo is an address of this host that no RDMA device has.
var lo = netip.MustParseAddr("127.0.0.1")

// from is a dialer from an address that may be another one each time.
func from(addr func() netip.Addr) *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.Bind(int(fd), &syscall.SockaddrInet4{Addr: addr().As4()})
		}), err)
	}}
}

// tcpOnly is a dialer from where there is no RDMA.
func tcpOnly() *net.Dialer { return from(func() netip.Addr { return lo }) }

// Where there is no RDMA a client says that it has TCP, and why; all works, by calls. One that
// requires RDMA does without. When there is RDMA the client goes over to it, and no call is
// lost on the way.
func TestWithoutRDMA(t *testing.T) {
	s := serve(t, server.Config{Key: redKey, Lease: quiet})
	at, ends, ctx := s.Addr().String(), lab.Require(t, 2), within(t)
	var there atomic.Bool
	dialer := from(func() netip.Addr {
		if there.Load() {
			return ends[0].Addr
		}
		return lo
	})
	_, err := cache.Dial(ctx, at, cache.Config{Key: redKey, Dialer: dialer, RequireRDMA: true})
	require.Error(t, err)
	require.NotErrorIs(t, err, cache.ErrDenied)
	t.Log(err)
	_, err = cache.Dial(ctx, at, cache.Config{Key: blueKey, Dialer: dialer})
	require.ErrorIs(t, err, cache.ErrDenied, "by TCP as well")

	c, err := cache.Dial(ctx, at, cache.Config{Key: redKey, Dialer: dialer, RetryRDMA: 50 * time.Millisecond, NearBytes: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	st := c.Stats()
	require.Equal(t, cache.TCP, st.Transport)
	require.NotEmpty(t, st.FallbackReason)
	t.Log(st.FallbackReason)
	require.Equal(t, []int{0, 1}, []int{s.Stats().Clients, s.Stats().Streams})
	long := make([]byte, 300_000)
	long[len(long)-1] = 1
	for _, err := range c.SetMulti(ctx, []cache.Entry{
		{Key: key(1), Item: cache.Item{Value: []byte("one"), Flags: 7}}, {Key: key(2), Item: cache.Item{Value: long}},
	}, nil) {
		require.NoError(t, err)
	}
	it, err := c.Get(ctx, key(2))
	require.NoError(t, err)
	require.Equal(t, long, it.Value)
	got := c.GetMulti(ctx, [][]byte{key(1), key(3), key(2)}, nil)
	require.Equal(t, "one", string(got[0].Value))
	require.Equal(t, uint32(7), got[0].Flags)
	require.ErrorIs(t, got[1].Err, cache.ErrNotFound)
	require.NoError(t, c.CompareAndSwap(ctx, key(1), cache.Item{Value: []byte("two"), CAS: got[0].CAS}, 0))
	_, err = c.Get(ctx, key(3))
	require.ErrorIs(t, err, cache.ErrNotFound)
	require.NoError(t, c.Set(ctx, key(4), cache.Item{}, time.Millisecond))
	require.Eventually(t, func() bool { _, err := c.Get(ctx, key(4)); return errors.Is(err, cache.ErrNotFound) }, stuck, time.Millisecond)
	st = c.Stats()
	require.Equal(t, []uint64{0, 0, 1}, []uint64{st.Hits, st.Reads, st.Sessions})
	require.Zero(t, st.Entries, "it needs no map")

	there.Store(true)
	n := 0
	for ; c.Stats().Transport == cache.TCP; n++ {
		require.NoError(t, c.Set(ctx, key(n), cache.Item{Value: key(n)}, 0))
		require.NoError(t, ctx.Err())
	}
	st = c.Stats()
	require.Equal(t, cache.RDMA, st.Transport)
	require.Empty(t, st.FallbackReason)
	require.Equal(t, uint64(2), st.Sessions)
	require.Eventually(t, func() bool { return s.Stats().Streams == 0 && c.Stats().Whole }, stuck, time.Millisecond)
	for c.Stats().Hits == 0 { // until the map has the last change, the server is asked
		it, err = c.Get(ctx, key(n-1))
		require.NoError(t, err)
		require.Equal(t, string(key(n-1)), string(it.Value))
	}
}

// greeted is a connection by TCP that was let in.
func greeted(t *testing.T, at string) net.Conn {
	t.Helper()
	c, err := tcpOnly().Dial("tcp", at)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = link.Greet(within(t), c, greet.Hello{Transport: greet.TCP}, nil, nil)
	require.NoError(t, err)
	return c
}

// Hostile bytes by TCP end the connection that sends them. For a client that takes nothing what
// waits is bounded, and its requests wait then.
func TestHostileStreams(t *testing.T) {
	s := serve(t, server.Config{MaxValue: 100_000, Lease: quiet})
	at := s.Addr().String()
	honest, err := cache.Dial(within(t), at, cache.Config{Dialer: tcpOnly()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, honest.Close()) })
	require.NoError(t, honest.Set(within(t), key(1), cache.Item{Value: make([]byte, 50_000)}, 0))
	for name, m := range hostileMessages(s, noise(t)) {
		c := greeted(t, at)
		_, err := c.Write(m)
		require.NoError(t, err, name)
		_ = c.SetReadDeadline(time.Now().Add(stuck))
		_, err = io.Copy(io.Discard, c)
		var late net.Error
		require.False(t, errors.As(err, &late) && late.Timeout(), name)
		require.Eventually(t, func() bool { return s.Stats().Streams == 1 }, stuck, time.Millisecond, name)
	}
	c := greeted(t, at)
	var deaf []byte
	for range 1000 {
		deaf = wire.AppendRequest(deaf, &wire.Request{Request: kv.Request{Op: kv.OpGet, Key: key(1)}})
	}
	_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	for err == nil {
		_, err = c.Write(deaf)
	}
	require.NoError(t, honest.Set(within(t), key(2), cache.Item{}, 0), "it holds up nobody else")
	require.Equal(t, uint64(1), honest.Stats().Sessions)
}
