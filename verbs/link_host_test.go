//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// hostLink is a link of the stand-in's, without a peer.
func hostLink(t *testing.T) (*PD, *Link) {
	t.Helper()
	d, p, c, _ := driverRig(t)
	l, _, err := prepareLink(d, standinGID, LinkConfig{PD: p, QP: QPConfig{Extended: true, SendCQ: c, KeepAlive: -1}})
	require.NoError(t, err)
	e := Endpoint{Type: RC, QPN: 0x99, PSN: 1, GID: standinPeer, MTU: MTU4096}
	require.NoError(t, l.QP().Connect(e, ConnectConfig{}))
	l.connected(nil, e)
	return p, l
}

func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(d):
		t.Fatal(what, " hangs")
	}
}

// A link registers nothing while it is being closed.
func TestLinkClosesWhileItsMethodsAreCalled(t *testing.T) {
	_, l := hostLink(t)
	r, err := l.Requester()
	require.NoError(t, err)
	require.True(t, r.posting.Try())
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, l.Close()) })
	Parked(t, "select", "verbs.(*Link).Close") // until no call posts
	_, err = l.AllocMR(64, MRConfig{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = l.Requester()
	require.ErrorIs(t, err, ErrClosed)
	r.posting.Release()
	within(t, 5*time.Second, "Close beside AllocMR", wg.Wait)
}

// What is registered for a link that is closed would never be closed.
func TestLinkRegistersNothingOnceClosed(t *testing.T) {
	p, l := hostLink(t)
	require.NoError(t, l.Close())
	_, err := l.AllocMR(64, MRConfig{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = l.RegisterMR(make([]byte, 64), MRConfig{})
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, p.life.Children("mr"))
}

type closer func() error

func (c closer) Close() error { return c() }

// Memory that requests under way name is not taken away before they are over,
// whichever was made first.
func TestLinkClosesItsRequesterFirst(t *testing.T) {
	_, l := hostLink(t)
	r, err := l.Requester()
	require.NoError(t, err)
	l.own(closer(func() error {
		require.False(t, r.busy())
		require.ErrorIs(t, l.QP().Err(), ErrClosed)
		return nil
	}))
	var c Call
	require.NoError(t, r.Go(t.Context(), &c, WriteWR(wordAt, wordSGE)))
	time.AfterFunc(10*time.Millisecond, func() { standin.Complete(l.QP().Num(), r.underWay()[0], uint32(WCFlushed)) })
	require.NoError(t, l.Close())
	require.ErrorIs(t, c.Wait(t.Context()), ErrClosed)
}

// pipes is a listener, which closes once.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	fails atomic.Int32 // so often there are no files
}

func (p *pipes) Accept() (net.Conn, error) {
	if p.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	c, ok := <-p.conns
	if !ok {
		return nil, io.EOF
	}
	return c, nil
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.conns) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client that says nothing keeps its queue pair no longer than ExchangeTimeout,
// however long the server is to serve.
func TestServeLinksGivesUpSilentClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, c, _ := driverRig(t)
		cfg := LinkConfig{PD: p, QP: QPConfig{Extended: true, SendCQ: c, GID: standinGID}}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		l := &pipes{conns: make(chan net.Conn, 1)}
		near, far := net.Pipe()
		go io.Copy(io.Discard, far)
		l.conns <- near
		begin := time.Now()
		err := ServeLinks(ctx, l, cfg, nil, func(_ net.Addr, err error) {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			l.Close()
		})
		require.ErrorIs(t, err, io.EOF)
		require.LessOrEqual(t, time.Since(begin), ExchangeTimeout)
		far.Close()
	})
}

// A process that has no file left for a connection serves on when it has.
func TestServeLinksWithoutFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, c, _ := driverRig(t)
		cfg := LinkConfig{PD: p, QP: QPConfig{Extended: true, SendCQ: c, GID: standinGID}}
		l := &pipes{conns: make(chan net.Conn, 1)}
		l.fails.Store(5)
		near, far := net.Pipe()
		require.NoError(t, far.Close())
		l.conns <- near
		tried := false
		err := ServeLinks(t.Context(), l, cfg, nil, func(net.Addr, error) {
			tried = true
			l.Close()
		})
		require.ErrorIs(t, err, io.EOF)
		require.True(t, tried)

		l = &pipes{conns: make(chan net.Conn)}
		l.fails.Store(math.MaxInt32)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, ServeLinks(ctx, l, cfg, nil, nil), "its end does not wait for files")
	})
}

// What Greet says goes before the exchange, and when it fails nothing else does.
func TestDialLinkGreetsFirst(t *testing.T) {
	_, p, c, _ := driverRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, no := range []error{nil, io.ErrNoProgress} {
		heard := make(chan []byte, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				close(heard)
				return
			}
			b := make([]byte, 6)
			n, _ := io.ReadFull(conn, b)
			conn.Close()
			heard <- b[:n]
		}()
		_, err = DialLink(t.Context(), l.Addr().String(), LinkConfig{
			PD: p, QP: QPConfig{Extended: true, SendCQ: c, GID: standinGID},
			Greet: func(_ context.Context, conn net.Conn) error {
				_, err := conn.Write([]byte("hello"))
				return errors.Join(err, no)
			},
		})
		require.Error(t, err)
		if no != nil {
			require.ErrorIs(t, err, no)
			require.Equal(t, "hello", string(<-heard))
		} else {
			require.Equal(t, "hello", string((<-heard)[:5]))
		}
	}
}

// Messages of a link may complete apart from what it sends. Then the ends of lists without a waiter are
// polled for only by the next post, by Poll, and when receives are found flushed: a SEND that failed
// may be the cause.
func TestLinkReceivesApart(t *testing.T) {
	d, p, c, _ := driverRig(t)
	l, _, err := prepareLink(d, standinGID, LinkConfig{
		PD: p, QP: QPConfig{Extended: true, KeepAlive: -1, SendCQ: c, MaxSendWR: 4, MaxRecvWR: 4}, ReceiveApart: true, Receive: &ReceiverConfig{Size: 16},
	})
	require.NoError(t, err)
	q := l.QP()
	require.NotSame(t, q.sendCQ, q.recvCQ)
	require.NoError(t, q.Connect(Endpoint{Type: RC, QPN: 0x99, PSN: 1, GID: standinPeer, MTU: MTU4096}, ConnectConfig{}))
	mr, err := l.AllocMR(64, MRConfig{})
	require.NoError(t, err)
	r, err := l.Requester()
	require.NoError(t, err)
	begin := func() *Call {
		t.Helper()
		var call Call
		require.NoError(t, r.Go(t.Context(), &call, SendWR(mr.SGE(0, 8))))
		require.False(t, call.Done())
		return &call
	}
	first := begin()
	standin.Complete(q.Num(), r.underWay()[0], uint32(WCSuccess))
	_, ok, err := l.Receiver().TryReceive(make([]byte, 16))
	require.NoError(t, err)
	require.False(t, ok)
	require.False(t, first.Done(), "nobody has polled")
	r.Poll()
	require.True(t, first.Done())

	second := begin()
	standin.Complete(q.Num(), r.underWay()[0], uint32(WCRetryExceeded))
	l.Receiver().flushed.Store(true)
	_, _, err = l.Receiver().TryReceive(make([]byte, 16))
	require.ErrorIs(t, err, WCRetryExceeded)
	require.True(t, second.Done())
	require.NotSame(t, q.recvCQ, c)
	apart := q.recvCQ
	l.Receiver().posted.Store(0) // the stand-in flushes nothing
	require.NoError(t, l.Close())
	require.ErrorIs(t, apart.life.Open("use"), ErrClosed)
}
