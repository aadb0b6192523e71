//go:build linux

package srd_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// An endpoint sends to itself as to any other.
func TestSendToItself(t *testing.T) {
	a, _ := pair(t, srd.Config{})
	for i := range 20 {
		sent := make(chan error)
		go func() { sent <- a.Destination(a.Addr(), srd.Ordered).Send(ctxOf(t), pattern(i, 10_000)) }()
		m, got := receiveOne(t, a)
		require.Equal(t, pattern(i, 10_000), got)
		require.Equal(t, a.Addr(), m.From)
		require.NoError(t, <-sent)
	}
}

// A callback replies by sending, to an endpoint with a callback that does so, too.
func TestCallbacksSend(t *testing.T) {
	es := ends(t)
	var eps [2]*srd.Endpoint
	var ready, answers sync.WaitGroup
	ready.Add(1)
	answers.Add(50)
	done := make(chan bool)
	for i := range eps {
		eps[i] = open(t, es[i], srd.Config{OnMessage: func(m *srd.Message) {
			ready.Wait()
			if m.Data[0] == 50 {
				close(done)
				return
			}
			if err := eps[i].Send(ctxOf(t), m.From, []byte{m.Data[0] + 1}); err != nil {
				t.Error(err)
			}
			answers.Done()
		}})
	}
	ready.Done()
	require.NoError(t, eps[0].Send(ctxOf(t), eps[1].Addr(), []byte{0}))
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatal("callbacks wait for each other")
	}
	answers.Wait()
}

// Memory of messages may go back after the endpoint was closed.
func TestReleaseAfterClose(t *testing.T) {
	a, b := pair(t, srd.Config{})
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
	var ms [1]srd.Message
	_, err := b.Receive(ctxOf(t), ms[:])
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.Equal(t, "hello", string(ms[0].Data))
	b.Release(ms[:]...)
	b.Release(ms[:]...)
}

// A message to an address that does not exist fails in time, and does not keep messages from
// others.
func TestNoAddress(t *testing.T) {
	cfg := srd.Config{PeerTimeout: 500 * time.Millisecond}
	if onEFA { // the device says so at once, but a busy machine takes long to hear it 600 times
		cfg.PeerTimeout = testTimeout
	}
	a, b := pair(t, cfg)
	q, err := a.NewQueue(srd.QueueConfig{Depth: 4096})
	require.NoError(t, err)
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello"))) // the way is known
	const n = 600                                                   // more than there are slots
	for i := range n {
		to := srd.Addr{QPN: uint32(i + 1)}
		to.GID[0], to.GID[14], to.GID[15] = 0x20, byte(i>>8), byte(i) // no route
		_, err := q.Post(srd.Request{To: to, Data: [][]byte{pattern(i, 64)}})
		require.NoError(t, err)
	}
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("and again")))
	for done := 0; done < n; {
		var cs [64]srd.Completion
		k, err := q.Wait(ctxOf(t), cs[:])
		require.NoError(t, err)
		for _, c := range cs[:k] {
			require.Equal(t, srd.Unresponsive, c.Status)
		}
		done += k
	}
	require.Eventually(t, func() bool { return a.Parked() == 0 }, testTimeout, time.Millisecond, "packets to nobody wait for ever")
}

// An address that is none is refused at once, and the error for a peer to which there is no way
// says why.
func TestSendSaysWhy(t *testing.T) {
	a, b := pair(t, srd.Config{PeerTimeout: 2 * time.Second})
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	for _, to := range []srd.Addr{{}, {GID: b.Addr().GID}, {QPN: b.Addr().QPN}} {
		require.ErrorIs(t, a.Send(ctxOf(t), to, nil), verbs.ErrAttributes, to)
		_, err := q.Post(srd.Request{To: to})
		require.ErrorIs(t, err, verbs.ErrAttributes, to)
	}
	err = a.Send(ctxOf(t), srd.Addr{GID: verbs.GID{0: 0x20, 15: 1}, QPN: 1}, nil)
	require.ErrorIs(t, err, srd.ErrUnresponsive)
	if simulated == nil { // others take any address
		require.ErrorContains(t, err, "there is no way to it: verbs: create ah")
	}
}

// Unauthenticated peers that do not answer neighbour requests, which take the kernel long, keep no endpoint
// from reaching a new peer.
func TestUnauthenticatedPeersFromNowhere(t *testing.T) {
	if len(simulated) > 0 {
		t.Skip("the kernel asks for no neighbours there")
	}
	a, b := pair(t, srd.Config{})
	a.Greeted(40)
	start := time.Now()
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
	t.Logf("%v; %+v", time.Since(start), a.Stats())
	require.Less(t, time.Since(start), 4*time.Second)
}

// Nor do peers of this side's own on hosts that are down.
func TestHostsThatAreDown(t *testing.T) {
	if len(simulated) > 0 {
		t.Skip("the kernel asks for no neighbours there")
	}
	a, b := pair(t, srd.Config{})
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	for i := range 20 {
		to := b.Addr()
		to.GID[15] = byte(100 + i)
		_, err := q.Post(srd.Request{To: to, Data: [][]byte{pattern(i, 64)}})
		require.NoError(t, err)
	}
	start := time.Now()
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
	require.Less(t, time.Since(start), 4*time.Second)
}

// Calls that are cancelled, queues and endpoints that are closed beside each other: no
// call hangs, and none fails for another reason.
func TestCloseBesideCalls(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		a, b := pair(t, srd.Config{Buffers: 1 << 20})
		var calls sync.WaitGroup
		q, err := a.NewQueue(srd.QueueConfig{})
		require.NoError(t, err)
		expected := func(err error) {
			for _, want := range []error{nil, verbs.ErrClosed, context.DeadlineExceeded, srd.ErrRefused, srd.ErrQueueFull, srd.ErrUnresponsive} {
				if errors.Is(err, want) || err == want {
					return
				}
			}
			t.Error(err)
		}
		stop := make(chan bool)
		loop := func(f func(ctx context.Context) error) {
			calls.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(context.Background(), 500*time.Microsecond)
					expected(f(ctx))
					cancel()
				}
			})
		}
		for range 2 {
			loop(func(ctx context.Context) error { return a.Send(ctx, b.Addr(), pattern(1, 50_000)) })
			loop(func(ctx context.Context) error {
				var ms [4]srd.Message
				n, err := b.Receive(ctx, ms[:])
				b.Release(ms[:n]...)
				return err
			})
			loop(func(ctx context.Context) error {
				var cs [4]srd.Completion
				_, err := q.Wait(ctx, cs[:])
				return err
			})
			loop(func(context.Context) error {
				_, err := q.Post(srd.Request{To: b.Addr(), Data: [][]byte{pattern(1, 20_000)}})
				return err
			})
		}
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, q.Close())
		time.Sleep(time.Millisecond)
		for _, ep := range []*srd.Endpoint{a, b} {
			calls.Go(func() { expected(ep.Close()) })
		}
		time.Sleep(5 * time.Millisecond)
		close(stop)
		calls.Wait()
	}
}

// Bytes of a message that is given up are the program's at once: what arrives all the same
// are those that were sent.
func TestCancelledBytes(t *testing.T) {
	a, b := pair(t, srd.Config{})
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	got := make(map[byte]int)
	reading.Go(func() {
		for {
			var ms [8]srd.Message
			n, err := b.Receive(ctx, ms[:])
			if err != nil {
				return
			}
			for _, m := range ms[:n] {
				got[m.Data[0]]++
				if m.Data[0] == 0xff || !bytes.Equal(m.Data, bytes.Repeat(m.Data[:1], len(m.Data))) {
					t.Error("bytes of after the call")
				}
			}
			b.Release(ms[:n]...)
		}
	})
	rounds := 100
	if testing.Short() {
		rounds = 40
	}
	sent, data := 0, make([]byte, 60_000)
	for i := range rounds {
		for k := range data {
			data[k] = byte(i)
		}
		short, cancel := context.WithTimeout(ctx, time.Duration(i*20)*time.Microsecond)
		service := []srd.Service{srd.Reliable, srd.Ordered}[i%2]
		if err := a.Destination(b.Addr(), service).Send(short, data); err == nil {
			sent++
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		cancel()
		for k := range data {
			data[k] = 0xff
		}
	}
	require.Eventually(t, func() bool { return b.Waiting() == 0 }, testTimeout, time.Millisecond)
	stop()
	reading.Wait()
	require.GreaterOrEqual(t, len(got), sent)
	for i, n := range got {
		require.Equal(t, 1, n, "message %d", i)
	}
}
