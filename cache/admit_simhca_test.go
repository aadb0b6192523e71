//go:build simhca && linux && cgo

package cache_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/dc"
)

// A client whose address leads to another server of the same cluster, with the same key, is told which one it is,
// and does not use it.
func TestSimulatedOtherServer(t *testing.T) {
	key := []byte("key of the cluster")
	s := simulatedServer(t, server.Config{Key: key})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(o, c); o.Close() }()
			go func() { _, _ = io.Copy(c, o); c.Close() }()
		}
	}()
	_, err = cache.Dial(within(t), l.Addr().String(), cache.Config{Key: key})
	require.ErrorIs(t, err, cache.ErrDenied)
	require.ErrorContains(t, err, `the server is "`+s.Addr().String()+`", and not "`+l.Addr().String()+`"`)
	c, err := cache.Dial(within(t), s.Addr().String(), cache.Config{Key: key})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// A client that READs through the target, never says that it is done with what was freed, and comes again
// whenever it is cut off, has to wait before it may READ, from the third time on. By TCP it need not.
func TestSimulatedSilentClient(t *testing.T) {
	s := simulatedServer(t, server.Config{Lease: time.Second, DC: server.DCConfig{Responders: 1, Backend: dc.Hardware}})
	ctx := within(t)
	over, stop := context.WithCancel(ctx)
	changes := make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && over.Err() == nil; i++ {
			_, err = s.Do(ctx, &kv.Request{Op: kv.OpSet, Key: key(0), Value: key(i)})
			time.Sleep(time.Millisecond)
		}
		changes <- err
	}()
	told, ended := make(chan struct{}), make(chan int, 1)
	hears := sync.OnceFunc(func() { close(told) })
	silent, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		n := 0
		for ; n < 6 && silent.Err() == nil; n++ { // the last pause would be of 8 leases
			conn, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				break
			}
			_, err = link.Greet(silent, conn, greet.Hello{Transport: greet.DC}, nil, hears)
			if err == nil {
				_, _ = io.Copy(io.Discard, conn) // until it is cut off
			}
			_ = conn.Close()
		}
		ended <- n
	}()
	select {
	case <-told:
	case <-ended:
		require.Fail(t, "it never has to wait")
	}
	c, err := cache.Dial(ctx, s.Addr().String(), cache.Config{})
	require.NoError(t, err)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{}, 0))
	require.NoError(t, c.Close())
	cancel()
	require.Greater(t, <-ended, 2, "a client that hangs once does not wait")
	stop()
	require.NoError(t, <-changes)
}
