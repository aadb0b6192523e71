package link

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

var key = []byte("a key of sixteen")

func always(string) bool { return true }

// Both ends of a greeting, over a connection without any buffer. It can be used afterwards, for
// as long as anybody likes.
func TestGreet(t *testing.T) {
	for name, ours := range map[string][]byte{"everybody": nil, "a key": key} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			heard := make(chan greet.Hello, 1)
			go func() {
				defer close(heard)
				if h, err := Greeted(t.Context(), far, func(string) []byte { return ours }, always); err == nil {
					heard <- h
				}
			}()
			require.NoError(t, Greet(t.Context(), near, greet.TCP, "tenant", ours), name)
			h, ok := <-heard
			require.True(t, ok, name)
			require.Equal(t, "tenant", h.Tenant)
			require.Equal(t, greet.TCP, h.Transport)
			time.Sleep(2 * GreetTimeout)
			go near.Write([]byte("more"))
			b := make([]byte, 4)
			_, err := io.ReadFull(far, b)
			require.NoError(t, err)
		})
	}
}

// A tenant that is full says so to its own clients.
func TestGreetWithoutRoom(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	refused := make(chan error, 1)
	go func() {
		_, err := Greeted(t.Context(), far, func(string) []byte { return key }, func(name string) bool { return name != "tenant" })
		refused <- err
	}()
	require.ErrorIs(t, Greet(t.Context(), near, greet.TCP, "tenant", key), greet.ErrFull)
	require.ErrorIs(t, <-refused, greet.ErrFull)
}

// Who stops in the middle is given up, wherever that is, and whichever side it is; a context
// that ends is no less.
func TestGreetingThatStops(t *testing.T) {
	c := greet.NewClient(greet.RDMA, "tenant", key)
	for name, say := range map[string][]byte{"nothing": nil, "half a hello": c.Hello()[:50], "a hello": c.Hello()} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			go func() {
				_, _ = near.Write(say)
				_, _ = io.Copy(io.Discard, near)
			}()
			begin := time.Now()
			_, err := Greeted(t.Context(), far, func(string) []byte { return key }, always)
			require.Error(t, err, name)
			require.Equal(t, GreetTimeout, time.Since(begin), name)
			far.Close()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go io.Copy(io.Discard, far)
		begin := time.Now()
		require.Error(t, Greet(t.Context(), near, greet.RDMA, "tenant", key))
		require.Equal(t, GreetTimeout, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, Greet(ctx, near, greet.RDMA, "tenant", key), context.DeadlineExceeded)
		require.Equal(t, GreetTimeout+time.Second, time.Since(begin))
		near.Close()
	})
}
