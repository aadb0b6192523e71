//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/internal/canceltest"
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

	asks, err := NewRequester(q, RequesterConfig{})
	require.NoError(t, err)
	p2, err := asks.Start(t.Context(), oneWrite)
	require.NoError(t, err)
	standin.Recorded()
	canceltest.Methods(t, asks, []any{wordAt, wordSGE, &Call{}})
	recorded(t, "")
	require.EqualValues(t, asks.capacity-1, asks.credits.Load())
	standin.Complete(q.Num(), asks.underWay()[0], uint32(WCSuccess))
	require.NoError(t, p2.Wait(ended), "what has succeeded is a success")
	require.NoError(t, asks.Close())

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

// inFlight are the calls that can have requests at the device.
var inFlight = map[string]func(ctx context.Context, r *Requester) error{
	"Read":     func(ctx context.Context, r *Requester) error { return r.Read(ctx, wordAt, wordSGE) },
	"Write":    func(ctx context.Context, r *Requester) error { return r.Write(ctx, wordAt, wordSGE) },
	"Send":     func(ctx context.Context, r *Requester) error { return r.Send(ctx, wordSGE) },
	"Do":       func(ctx context.Context, r *Requester) error { return r.Do(ctx, oneWrite) },
	"FetchAdd": func(ctx context.Context, r *Requester) error { _, err := r.FetchAdd(ctx, wordAt, 1); return err },
	"CmpSwap":  func(ctx context.Context, r *Requester) error { _, err := r.CmpSwap(ctx, wordAt, 0, 1); return err },
	"Wait": func(ctx context.Context, r *Requester) error {
		p, err := r.Start(ctx, oneWrite)
		if err != nil {
			return err
		}
		return p.Wait(ctx)
	},
}

// leave makes a call to a silent peer, and returns its error when its context has ended.
func leave(t *testing.T, r *Requester, name string, call func(context.Context, *Requester) error) *InFlightError {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	before := r.credits.Load()
	go func() { done <- call(ctx, r) }()
	require.Eventually(t, func() bool { return r.credits.Load() == before-1 }, time.Minute, time.Millisecond)
	cancel()
	var err error
	within(t, 10*time.Second, name, func() { err = <-done })
	require.ErrorIs(t, err, context.Canceled, name)
	var e *InFlightError
	require.ErrorAs(t, err, &e, name)
	return e
}

// A call returns when its context ends while the peer is silent. The place in the queue and the
// memory are the device's until its completion is taken, which nothing else has to poll for.
func TestContextEndsInFlight(t *testing.T) {
	eachHostCQ(t, func(t *testing.T, cc CQConfig) {
		for name, call := range inFlight {
			t.Run(name, func(t *testing.T) {
				_, _, _, q := hostSide(t, cc)
				r, err := NewRequester(q, RequesterConfig{Linger: -1})
				require.NoError(t, err)
				var left []*InFlightError
				for range 3 {
					left = append(left, leave(t, r, name, call))
				}
				require.Equal(t, name == "Send", strings.Contains(left[0].Error(), "the peer may have posted no receive"), left[0])
				ids := r.underWay()
				require.Len(t, ids, len(left), name)
				r.mu.Lock()
				require.Len(t, r.free, len(r.slots)-len(left), name)
				r.mu.Unlock()
				for _, e := range left {
					require.NoError(t, e.Err())
					select {
					case <-e.Done():
						require.Fail(t, "the device still has it", name)
					default:
					}
				}
				if r.results != nil {
					clear(r.results.Bytes())
				}
				for _, id := range ids {
					standin.Complete(q.Num(), id, uint32(WCSuccess))
				}
				r.router.cq.wake() // the stand-in raises no events
				for _, e := range left {
					within(t, 10*time.Second, name, func() { <-e.Done() })
					require.NoError(t, e.Err(), name)
				}
				r.mu.Lock()
				require.Len(t, r.free, len(r.slots), name)
				r.mu.Unlock()
				require.EqualValues(t, r.capacity, r.credits.Load(), name)
				require.NoError(t, q.Err(), name)
				closes(t, r)
				closes(t, q)
			})
		}
	})
}

// What calls have left is over when the device fails it, when it has lingered for too long,
// and when the requester is closed.
func TestInFlightEnds(t *testing.T) {
	eachHostCQ(t, func(t *testing.T, cc CQConfig) {
		for name, c := range map[string]struct {
			linger time.Duration
			end    func(r *Requester)
			want   error
		}{
			"failed": {-1, func(r *Requester) {
				standin.Complete(r.qp.Num(), r.underWay()[0], uint32(WCRetryExceeded))
				r.router.cq.wake()
			}, WCRetryExceeded},
			"lingers": {time.Millisecond, func(*Requester) {}, context.Canceled},
			"closed":  {-1, func(r *Requester) { closes(t, r) }, ErrClosed},
		} {
			t.Run(name, func(t *testing.T) {
				_, _, _, q := hostSide(t, cc)
				r, err := NewRequester(q, RequesterConfig{Linger: c.linger})
				require.NoError(t, err)
				e := leave(t, r, name, inFlight["Read"])
				c.end(r)
				within(t, 20*time.Second, name, func() { <-e.Done() })
				require.ErrorIs(t, e.Err(), c.want, name)
				require.ErrorIs(t, q.Err(), c.want, name)
				require.Len(t, r.free, len(r.slots), name)
				closes(t, r)
				closes(t, q)
			})
		}
	})
}

// A masked atomic returns when its context ends. The next one waits until the memory is not the
// device's any more, at the latest when the requester is closed.
func TestMaskedInFlight(t *testing.T) {
	eachHostCQ(t, func(t *testing.T, cc CQConfig) {
		_, p, _, q := hostSide(t, cc)
		mr, err := p.AllocMR(8, MRConfig{})
		require.NoError(t, err)
		r, err := NewRequester(q, RequesterConfig{Linger: -1})
		require.NoError(t, err)
		m, err := NewMasked(r, mr, 0, MaskedConfig{})
		require.NoError(t, err)
		or := func(ctx context.Context, _ *Requester) error {
			_, err := m.CmpSwap(ctx, wordAt, MaskedCmpSwap{Swap: 1, SwapMask: 1})
			return err
		}
		first := leave(t, r, "the first", or)
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		within(t, 10*time.Second, "the second", func() { err = or(short, r) })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var again *InFlightError
		require.False(t, errors.As(err, &again), "it waits for the one before")
		require.NoError(t, first.Err())
		standin.Complete(q.Num(), r.underWay()[0], uint32(WCSuccess))
		r.router.cq.wake() // the stand-in raises no events
		within(t, 10*time.Second, "the request", func() { <-first.Done() })
		require.NoError(t, first.Err())
		second := leave(t, r, "the third", or)
		closes(t, r)
		within(t, 10*time.Second, "the request", func() { <-second.Done() })
		require.ErrorIs(t, second.Err(), ErrClosed)
		require.ErrorIs(t, or(t.Context(), r), ErrClosed)
		closes(t, q)
		closes(t, mr)
	})
}
