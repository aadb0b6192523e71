package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/dc"
)

// When a session by TCP has ended there is no attempt by RDMA that operations have to wait for:
// one to a server that does not answer would take ten seconds.
func TestNoAttemptByRDMAAfterTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := newClient(l.Addr().String(), Config{})
	require.NoError(t, err)
	tcp := &session{c: c, by: TCP}
	tcp.live, tcp.stop = context.WithCancel(c.ctx)
	tcp.stop()
	require.Nil(t, c.better(tcp))
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "nobody has come")
}

// reluctant is a server that admits clients by TCP, and tells all others to wait until it closes. come has
// the transport of each greeting.
func reluctant(t *testing.T) (address string, come chan greet.Transport) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	come = make(chan greet.Transport, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		l.Close()
		all.Wait()
	})
	serve := func(conn net.Conn) {
		defer conn.Close()
		h, _, err := link.Greeted(ctx, conn, func(string) []byte { return nil }, func(h *greet.Hello, w *link.Waiter) error {
			if come <- h.Transport; h.Transport == greet.TCP {
				return nil
			}
			return w.Attend(ctx, func(ctx context.Context) error {
				for ctx.Err() == nil {
					if err := w.Wait(); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
				}
				return ctx.Err()
			})
		})
		if err == nil && h.Transport == greet.TCP {
			_, _ = conn.Write(wire.AppendMap(nil, &wire.Map{Epoch: 1}))
			_, _ = conn.Read(make([]byte, 1<<16))
		}
	}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(conn) })
		}
	})
	return l.Addr().String(), come
}

// A client that is told to wait for RDMA uses TCP at once, says so, and waits for RDMA meanwhile.
func TestClientsWaitByTCP(t *testing.T) {
	address, come := reluctant(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := Dial(ctx, address, Config{RetryRDMA: time.Hour})
	require.NoError(t, err)
	require.Equal(t, TCP, c.Stats().Transport)
	require.Contains(t, c.Stats().FallbackReason, "the server said to wait")
	for _, by := range []greet.Transport{greet.RDMA, greet.TCP, greet.RDMA} {
		require.Equal(t, by, <-come)
	}
	require.NoError(t, c.Close())
}

// Without TCP it waits as long as its context allows, and the error says why, and for how long.
func TestClientsWaitForRDMA(t *testing.T) {
	address, _ := reluctant(t)
	const long = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	_, err := Dial(ctx, address, Config{RequireRDMA: true})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	w := waited(err)
	require.NotNil(t, w, err)
	require.Equal(t, RDMA, w.by)
	require.Contains(t, err.Error(), "no RDMA connection within "+w.waited.Round(time.Millisecond).String()+": the server said to wait")
}

// A session that is replaced ends no call that it has taken on, and takes on none when it has
// seen that no call waits.
func TestReplacedSessionEndsNoCall(t *testing.T) {
	c, err := newClient("nobody", Config{})
	require.NoError(t, err)
	s := &session{
		c: c, by: TCP, begun: time.Now(), m: mirror.New(mirror.Config{}), wake: make(chan struct{}, 1),
		over: make(chan struct{}), idle: make(chan struct{}), calls: map[uint64]*call{},
	}
	s.live, s.stop = context.WithCancel(c.ctx)
	q := wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("key")}}
	k, err := s.start(t.Context(), &q)
	require.NoError(t, err)
	require.False(t, s.endIdle(errReplaced))
	require.NoError(t, s.replied(wire.AppendReply(nil, &wire.Reply{ID: k.id, Reply: kv.Reply{Status: kv.OK}})))
	_, err = s.wait(t.Context(), k)
	require.NoError(t, err)
	require.True(t, s.endIdle(errReplaced))
	_, err = s.start(t.Context(), &q)
	require.Equal(t, errNotSent, err, "it is sent by the next one")
	require.True(t, s.endIdle(ErrClosed))
	require.Equal(t, errReplaced, s.cause())

	// A call that is under way when the session begins to be replaced.
	s.ended.Store(false)
	s.over, s.idle = make(chan struct{}), make(chan struct{})
	k, err = s.start(t.Context(), &q)
	require.NoError(t, err)
	time.AfterFunc(30*time.Millisecond, func() {
		_ = s.replied(wire.AppendReply(nil, &wire.Reply{ID: k.id, Reply: kv.Reply{Status: kv.OK}}))
	})
	c.drain(s)
	_, err = s.wait(t.Context(), k)
	require.NoError(t, err)

	// Nor is a READ ended.
	s.ended.Store(false)
	s.over, s.idle = make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	section, ok := s.enter()
	s.mu.Unlock()
	require.True(t, ok)
	require.False(t, s.endIdle(errReplaced))
	s.mu.Lock()
	s.leave(section)
	s.mu.Unlock()
	require.True(t, s.endIdle(errReplaced))
}

// A better way is looked for, unless there can be none.
func TestHopes(t *testing.T) {
	through := Config{DC: &dc.Initiator{}}
	failed := errors.New("no reply")
	for _, c := range []struct {
		cfg      Config
		by       Transport
		fallback error
		want     bool
	}{
		{Config{}, RDMA, nil, false},
		{Config{}, TCP, failed, true},
		{through, DC, nil, false},
		{through, RDMA, failed, true},
		{through, RDMA, errNoTarget, false},
		{through, RDMA, fmt.Errorf("initiator: %w", dc.ErrClosed), false},
		{through, TCP, errors.Join(errNoTarget, failed), true},
	} {
		s := session{c: &Client{cfg: c.cfg}, by: c.by, fallback: c.fallback}
		require.Equal(t, c.want, s.hopes(), "%s: %v", c.by, c.fallback)
	}
}
