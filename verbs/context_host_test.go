//go:build linux && cgo

package verbs

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// Every call with a context that has ended does nothing and returns the context's error.
func TestEndedContexts(t *testing.T) {
	_, p, c, q := hostSide(t, CQConfig{})
	standin.SetState(q.Num(), uint32(StateRTS))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	addr := netip.MustParseAddr("127.0.0.1")
	cfg := LinkConfig{PD: p, QP: QPConfig{Extended: true, GID: linkGID}}
	pipe := func() net.Conn {
		mine, _ := net.Pipe()
		return mine
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	standin.Complete(q.Num(), 7, uint32(WCSuccess))
	var wcs [1]WC
	standin.Recorded()
	for name, call := range map[string]func() error{
		"CQ.Wait":      func() error { _, err := c.Wait(ended, wcs[:]); return err },
		"Drain":        func() error { return q.Drain(ended, nil) },
		"Exchange":     func() error { _, err := Exchange(ended, pipe(), Endpoint{MTU: MTU1024}); return err },
		"NewLink":      func() error { _, err := NewLink(ended, pipe(), cfg); return err },
		"AcceptLink":   func() error { _, err := AcceptLink(ended, pipe(), cfg); return err },
		"DialLink":     func() error { _, err := DialLink(ended, l.Addr().String(), cfg); return err },
		"LookupAddr":   func() error { _, err := LookupAddr(ended, addr); return err },
		"LookupNetdev": func() error { _, err := LookupNetdev(ended, "lo"); return err },
		"ResolvePath":  func() error { _, err := ResolvePath(ended, addr); return err },
	} {
		require.ErrorIs(t, call(), context.Canceled, name)
	}
	recorded(t, "")
	require.Equal(t, StateRTS, q.State())
	require.Equal(t, 1, p.life.Children("qp"))
	n, err := c.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n, "the completion is still there")

	r, err := NewReceiver(q, ReceiverConfig{Size: 16, Depth: 2})
	require.NoError(t, err)
	r.arrive(0, "one")
	buf := make([]byte, 16)
	_, err = r.Receive(ended, buf)
	require.ErrorIs(t, err, context.Canceled)
	m, err := r.Receive(t.Context(), buf)
	require.NoError(t, err, "the message is still there")
	require.Equal(t, 3, m.Len)
	r.flush()
	require.NoError(t, r.Close())
	require.NoError(t, q.Close())
}

// An atomic whose context ends returns at once, whatever the device does: its memory is
// the requester's. The slot is free when the device is done.
func TestAtomicReturnsWithItsContext(t *testing.T) {
	eachHostCQ(t, func(t *testing.T, cc CQConfig) {
		_, _, _, q := hostSide(t, cc)
		r, err := NewRequester(q, RequesterConfig{Linger: -1})
		require.NoError(t, err)
		for n := range int32(3) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := r.FetchAdd(ctx, wordAt, 1)
				done <- err
			}()
			require.Eventually(t, func() bool { return r.credits.Load() == r.capacity-n-1 }, 10*time.Second, time.Millisecond)
			cancel()
			within(t, 10*time.Second, "FetchAdd", func() { require.ErrorIs(t, <-done, context.Canceled) })
		}
		require.NoError(t, q.Err())
		require.EqualValues(t, r.capacity-3, r.credits.Load())
		for _, id := range r.underWay() {
			standin.Complete(q.Num(), id, uint32(WCSuccess))
		}
		r.router.cq.wake()
		require.Eventually(t, func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.free) == len(r.slots)
		}, 10*time.Second, time.Millisecond)
		require.EqualValues(t, r.capacity, r.credits.Load())
		closes(t, r)
		closes(t, q)
	})
}
