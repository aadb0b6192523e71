package link

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

var key = []byte("a key of sixteen")

func greetBy(ctx context.Context, conn net.Conn, by greet.Transport, key []byte, alive func()) error {
	_, err := Greet(ctx, conn, greet.Hello{Transport: by, Tenant: "tenant"}, key, alive)
	return err
}

func atOnce(*greet.Hello, *Waiter) error { return nil }

// Both ends of a greeting, over a connection without any buffer. It can be used afterwards, for
// as long as anybody likes.
func TestGreet(t *testing.T) {
	for name, ours := range map[string][]byte{"everybody": nil, "a key": key} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			heard := make(chan greet.Hello, 1)
			var theirs greet.Seal
			go func() {
				defer close(heard)
				if h, seal, err := Greeted(t.Context(), far, func(string) []byte { return ours }, atOnce); err == nil {
					theirs = seal
					heard <- h
				}
			}()
			seal, err := Greet(t.Context(), near, greet.Hello{Transport: greet.TCP, Tenant: "tenant"}, ours, nil)
			require.NoError(t, err, name)
			h, ok := <-heard
			require.True(t, ok, name)
			said := []byte("what follows")
			require.NoError(t, theirs.Check(said, seal.Of(said)), name)
			require.NoError(t, seal.Check(said, theirs.Of(said)), name)
			require.Equal(t, ours == nil, seal.Of(said) == [greet.SealSize]byte{}, name)
			require.Equal(t, "tenant", h.Tenant)
			require.Equal(t, greet.TCP, h.Transport)
			time.Sleep(2 * GreetTimeout)
			go near.Write([]byte("more"))
			b := make([]byte, 4)
			_, err = io.ReadFull(far, b)
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
		_, _, err := Greeted(t.Context(), far, func(string) []byte { return key }, func(*greet.Hello, *Waiter) error { return greet.ErrFull })
		refused <- err
	}()
	require.ErrorIs(t, greetBy(t.Context(), near, greet.TCP, key, nil), greet.ErrFull)
	require.ErrorIs(t, <-refused, greet.ErrFull)
}

// A client that is told to wait waits, for longer than a greeting takes; an unauthenticated client is told nothing,
// nor is it waited for. With a key or without, the last reply is the one that counts.
func TestGreetingThatWaits(t *testing.T) {
	for name, ours := range map[string][]byte{"everybody": nil, "a key": key} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			const waits = 20
			came := make(chan error, 1)
			go func() {
				_, _, err := Greeted(t.Context(), far, func(string) []byte { return ours }, func(h *greet.Hello, w *Waiter) error {
					require.Equal(t, greet.RDMA, h.Transport)
					for range waits {
						time.Sleep(GreetTimeout - time.Second)
						if err := w.Wait(); err != nil {
							return err
						}
					}
					time.Sleep(GreetTimeout - time.Second)
					return nil
				})
				came <- err
			}()
			heard := 0
			require.NoError(t, greetBy(t.Context(), near, greet.RDMA, ours, func() { heard++ }), name)
			require.NoError(t, <-came)
			require.Equal(t, waits, heard)
		})
	}
	// A server that says nothing any more is given up, and one that says nothing else.
	for waits, least := range map[int]time.Duration{3: 3 * time.Second, 3000: 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, _ = Message(far)
				for range waits {
					time.Sleep(time.Second)
					if _, err := far.Write(greet.Later()); err != nil {
						return
					}
				}
			}()
			begin := time.Now()
			require.Error(t, greetBy(t.Context(), near, greet.RDMA, key, nil))
			require.GreaterOrEqual(t, time.Since(begin), least)
			require.LessOrEqual(t, time.Since(begin), least+GreetTimeout)
			near.Close()
			<-over
		})
	}
}

// A client without a turn is not admitted.
func TestGreetingWithoutATurn(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	no := errors.New("no")
	refused := make(chan error, 1)
	go func() {
		_, _, err := Greeted(t.Context(), far, func(string) []byte { return key }, func(*greet.Hello, *Waiter) error { return no })
		far.Close()
		refused <- err
	}()
	require.Error(t, greetBy(t.Context(), near, greet.RDMA, key, nil))
	require.ErrorIs(t, <-refused, no)
}

// A client that is told to wait and goes, or says anything, is waited for no longer.
func TestWaitingClientsAreHeard(t *testing.T) {
	for name, do := range map[string]func(net.Conn){
		"gone":   func(c net.Conn) { c.Close() },
		"speaks": func(c net.Conn) { _, _ = c.Write([]byte("x")) },
		"waits":  nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			turn, come := make(chan struct{}), make(chan error, 1)
			go func() {
				_, _, err := Greeted(t.Context(), far, func(string) []byte { return key }, func(_ *greet.Hello, w *Waiter) error {
					require.NoError(t, w.Wait())
					return w.Attend(t.Context(), func(ctx context.Context) error {
						select {
						case <-ctx.Done():
							return context.Cause(ctx)
						case <-turn:
							return nil
						}
					})
				})
				come <- err
			}()
			over := make(chan error, 1)
			go func() {
				over <- greetBy(t.Context(), near, greet.RDMA, key, func() {
					if do != nil {
						go do(near)
					}
				})
			}()
			synctest.Wait()
			if do == nil {
				close(turn)
				require.NoError(t, <-come, name)
				require.NoError(t, <-over, name)
				return
			}
			require.Error(t, <-come, name)
			far.Close()
			require.Error(t, <-over, name)
		})
	}
}

// A client that requires what the server does not have learns that, and so does the server.
func TestGreetingOfClientsThatRequireMore(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	const feature = greet.Features(1 << 31)
	refused := make(chan error, 1)
	go func() {
		_, _, err := Greeted(t.Context(), far, func(string) []byte { return key }, atOnce)
		refused <- err
	}()
	_, err := Greet(t.Context(), near, greet.Hello{Transport: greet.TCP, Required: feature}, key, nil)
	require.Equal(t, &greet.VersionError{Ours: greet.Version, Theirs: greet.Version, Missing: feature, Peer: true}, err)
	require.Equal(t, &greet.VersionError{Ours: greet.Version, Theirs: greet.Version, Missing: feature}, <-refused)
}

// A peer that stops in the middle is given up, wherever that is, and whichever side it is; a context
// that ends is no less.
func TestGreetingThatStops(t *testing.T) {
	c := greet.NewClient(greet.Hello{Transport: greet.RDMA, Tenant: "tenant"}, key)
	for name, say := range map[string][]byte{"nothing": nil, "half a hello": c.Hello()[:50], "a hello": c.Hello()} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			go func() {
				_, _ = near.Write(say)
				_, _ = io.Copy(io.Discard, near)
			}()
			begin := time.Now()
			_, _, err := Greeted(t.Context(), far, func(string) []byte { return key }, atOnce)
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
		require.Error(t, greetBy(t.Context(), near, greet.RDMA, key, nil))
		require.Equal(t, GreetTimeout, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, greetBy(ctx, near, greet.RDMA, key, nil), context.DeadlineExceeded)
		require.Equal(t, GreetTimeout+time.Second, time.Since(begin))
		near.Close()
	})
}
