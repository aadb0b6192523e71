//go:build linux

package srd_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
)

// Memory is given back once, however often a message and its copies are released.
func TestReleaseTwice(t *testing.T) {
	a, b := pair(t, srd.Config{})
	receive := func() srd.Message {
		var ms [1]srd.Message
		_, err := b.Receive(ctxOf(t), ms[:])
		require.NoError(t, err)
		return ms[0]
	}
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("one")))
	one := receive()
	copied := one
	b.Release(one, copied)
	b.Release(one)
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("two")))
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("three")))
	two, three := receive(), receive()
	b.Release(one)
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("four")))
	four := receive()
	require.Equal(t, "two three four", string(two.Data)+" "+string(three.Data)+" "+string(four.Data))
	b.Release(two, three, four)
}

// A socket that a process left behind which was killed does not keep an endpoint from opening;
// one at which another endpoint listens does.
func TestMonitorAfterCrash(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "srd.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	es := ends(t)
	a := open(t, es[0], srd.Config{Monitor: socket})
	r, err := srd.ReadReport(ctxOf(t), socket)
	require.NoError(t, err)
	require.Equal(t, a.Addr().String(), r.Addr)
}

// A call with a context that is over already does nothing, and returns why.
func TestContextsThatAreOver(t *testing.T) {
	a, b := pair(t, srd.Config{})
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("there is something")))
	_, err = q.Post(srd.Request{ID: 1, To: b.Addr(), Data: [][]byte{[]byte("and more")}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.Stats().Delivered == 2 }, testTimeout, time.Millisecond)

	over, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{over, context.Canceled}, {late, context.DeadlineExceeded}} {
		require.ErrorIs(t, a.Send(c.ctx, b.Addr(), []byte("never")), c.want)
		require.ErrorIs(t, a.Destination(b.Addr(), srd.Ordered).Send(c.ctx, []byte("never")), c.want)
		n, err := b.Receive(c.ctx, make([]srd.Message, 1))
		require.ErrorIs(t, err, c.want)
		require.Zero(t, n)
		n, err = q.Wait(c.ctx, make([]srd.Completion, 1))
		require.ErrorIs(t, err, c.want)
		require.Zero(t, n)
	}
	for range 2 {
		receiveOne(t, b)
	}
	_, err = q.Wait(ctxOf(t), make([]srd.Completion, 1))
	require.NoError(t, err)
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("last")))
	_, data := receiveOne(t, b)
	require.Equal(t, "last", string(data), "nothing else was sent")
}

// A callback that panics, or ends its goroutine, loses neither the endpoint nor memory, and is
// logged.
func TestCallbackEnds(t *testing.T) {
	es := ends(t)
	var out lockedBuffer
	got := make(chan byte, 100)
	b := open(t, es[1], srd.Config{Buffers: 1 << 16, Logger: slog.New(slog.NewTextHandler(&out, nil)), OnMessage: func(m *srd.Message) {
		got <- m.Data[0]
		switch m.Data[0] % 3 {
		case 0:
			panic("by the program")
		case 1:
			runtime.Goexit()
		}
	}})
	a := open(t, es[0], srd.Config{})
	for i := range byte(60) { // Buffers are for 32 of them
		require.NoError(t, a.Send(ctxOf(t), b.Addr(), bytes.Repeat([]byte{i}, 2000)))
		require.Equal(t, i, <-got)
	}
	require.NoError(t, b.Close())
	require.Contains(t, out.String(), "by the program")
	require.Contains(t, out.String(), "Goexit")
}

// An endpoint with another key gets no reply: the receiver logs why, and the sender's error
// names what may be wrong.
func TestOtherKey(t *testing.T) {
	es := ends(t)
	var out lockedBuffer
	b := open(t, es[1], srd.Config{Key: []byte("0123456789abcdef"), Logger: slog.New(slog.NewTextHandler(&out, nil))})
	for _, key := range [][]byte{nil, []byte("fedcba9876543210")} {
		a := open(t, es[0], srd.Config{Key: key, PeerTimeout: 200 * time.Millisecond})
		before := b.Stats().WrongKey
		err := a.Send(ctxOf(t), b.Addr(), []byte("hello"))
		require.ErrorIs(t, err, srd.ErrUnresponsive)
		require.ErrorContains(t, err, "the same Key")
		require.Greater(t, b.Stats().WrongKey, before)
	}
	require.Contains(t, out.String(), "another Key")
}

// lockedBuffer is a buffer for the log of an endpoint.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
