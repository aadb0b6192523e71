//go:build linux && cgo

package verbs

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/pending"
)

// linkGID is an address of the stand-in's that peers can reach.
var linkGID = GIDEntry{GID: standinPeer, Port: 1, Index: 3, Type: GIDRoCEv2}

// hostServer serves links of the stand-in until the test ends.
func hostServer(t *testing.T, setup func(*Link) (Offer, error), serve func(context.Context, *Link) error) (p *PD, cfg LinkConfig, address string, failed chan error, stop func()) {
	t.Helper()
	_, p, _, _ = driverRig(t)
	cfg = LinkConfig{PD: p, QP: QPConfig{Extended: true, GID: linkGID}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	failed = make(chan error, 2000)
	serving := cfg
	serving.Setup = setup
	go func() { served <- ServeLinks(ctx, l, serving, serve, func(_ net.Addr, err error) { failed <- err }) }()
	return p, cfg, l.Addr().String(), failed, func() {
		t.Helper()
		cancel()
		within(t, 10*time.Second, "ServeLinks", func() { require.NoError(t, <-served) })
		require.Zero(t, p.life.Children("qp"))
		require.Zero(t, p.dev.life.Children("cq")-1, "but that of the rig")
	}
}

func silent(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// A thousand connections that say nothing cost a file and a goroutine each, some of them,
// and a client of the same address connects beside them.
func TestServeLinksBesideSilentConnections(t *testing.T) {
	var made atomic.Int32
	served := make(chan *Link, 1)
	p, cfg, address, failed, stop := hostServer(t,
		func(*Link) (Offer, error) { made.Add(1); return Offer{}, nil },
		func(ctx context.Context, l *Link) error { served <- l; <-ctx.Done(); return nil })
	const flood, places = 1000, 256
	conns := make([]net.Conn, flood)
	for i := range conns {
		conns[i] = silent(t, address)
	}
	for range flood - places {
		require.ErrorIs(t, <-failed, pending.ErrCrowded)
	}
	require.Zero(t, made.Load())
	require.Zero(t, p.life.Children("qp"))
	require.Equal(t, 1, p.dev.life.Children("cq"), "but that of the rig")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := DialLink(ctx, address, cfg)
	require.NoError(t, err)
	<-served
	require.EqualValues(t, 1, made.Load())
	require.ErrorIs(t, <-failed, pending.ErrCrowded, "the oldest makes room for the client")

	_, err = conns[flood-1].Write([]byte("GET / HTTP/1.1\r\n\r\n, and more than an address would have"))
	require.NoError(t, err)
	require.ErrorIs(t, <-failed, ErrMessage)
	udp := Endpoint{Type: UD, QPN: 1, GID: standinPeer, MTU: MTU1024}
	msg, err := udp.MarshalBinary()
	require.NoError(t, err)
	_, err = conns[flood-2].Write(msg)
	require.NoError(t, err)
	require.ErrorIs(t, <-failed, ErrAttributes, "another transport")
	require.EqualValues(t, 1, made.Load())
	require.NoError(t, l.Close())
	stop()
}

// Under a context that has ended already ServeLinks accepts nothing, and closes its
// listener.
func TestServeLinksCancelledBefore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	silent(t, l.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	within(t, 10*time.Second, "ServeLinks", func() {
		require.ErrorIs(t, ServeLinks(ctx, l, LinkConfig{}, nil, func(net.Addr, error) { t.Error("it accepted a client") }), context.Canceled)
	})
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// mortal is a connection that ends because its peer's host has died, once it has.
type mortal struct {
	net.Conn
	dead *atomic.Bool
}

func (m mortal) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if err != nil && m.dead.Load() {
		err = os.NewSyscallError("read", syscall.ETIMEDOUT)
	}
	return n, err
}

// A server is told when a client's host has died, and not when a client hangs up.
func TestServeLinksTellsOfDeadHosts(t *testing.T) {
	_, p, _, _ := driverRig(t)
	for _, dies := range []bool{true, false} {
		cfg := LinkConfig{PD: p, QP: QPConfig{Extended: true, GID: linkGID}}
		l := &pipes{conns: make(chan net.Conn, 1)}
		near, far := net.Pipe()
		var dead atomic.Bool
		l.conns <- mortal{far, &dead}
		told := make(chan error, 1)
		ended, served := make(chan error, 1), make(chan error, 1)
		go func() {
			served <- ServeLinks(t.Context(), l, cfg, func(ctx context.Context, l *Link) error {
				<-ctx.Done()
				ended <- l.QP().Err()
				return context.Cause(ctx)
			}, func(_ net.Addr, err error) { told <- err })
		}()
		client, err := NewLink(t.Context(), near, cfg)
		require.NoError(t, err)
		dead.Store(dies)
		require.NoError(t, near.Close())
		err = <-ended
		if dies {
			require.ErrorIs(t, <-told, ErrUnreachable)
		}
		l.Close()
		require.ErrorIs(t, <-served, io.EOF)
		if dies {
			require.ErrorIs(t, err, ErrUnreachable)
		} else {
			require.ErrorIs(t, err, io.EOF)
		}
		require.Empty(t, told)
		require.NoError(t, client.Close())
	}
}

// The two orders of speaking: a peer that waits for the server's endpoint before it sends
// its own gets none, and one that sends first or at the same time does.
func TestAcceptLinkReadsFirst(t *testing.T) {
	_, p, _, _ := driverRig(t)
	cfg := LinkConfig{PD: p, QP: QPConfig{Extended: true, GID: linkGID}}
	mine, theirs := net.Pipe() // writes wait for reads
	links := make(chan *Link, 1)
	go func() {
		l, err := AcceptLink(context.Background(), theirs, cfg)
		if err != nil {
			t.Error(err)
		}
		links <- l
	}()
	a, err := NewLink(t.Context(), mine, cfg)
	require.NoError(t, err)
	b := <-links
	require.NotNil(t, b)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())

	mine, theirs = net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := AcceptLink(ctx, theirs, cfg)
		ended <- err
	}()
	_, err = mine.Write([]byte(endpointMagic))
	require.NoError(t, err)
	require.Zero(t, p.life.Children("qp"), "nothing is made before the endpoint has come")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	_, err = mine.Read(make([]byte, 1))
	require.Error(t, err, "it is closed")
	require.Zero(t, p.life.Children("qp"))
}

// The end of a goroutine that serves is the end of its link, and is told.
func TestServeDoesNotReturn(t *testing.T) {
	_, cfg, address, failed, stop := hostServer(t, nil, func(context.Context, *Link) error { runtime.Goexit(); return nil })
	l, err := DialLink(t.Context(), address, cfg)
	require.NoError(t, err)
	require.ErrorIs(t, <-failed, errNoReturn)
	<-l.QP().Done()
	require.NoError(t, l.Close())
	stop()
}

// A Setup, a Greet or a part of the program's that does not return leaves nothing behind.
func TestLinkPartsDoNotReturn(t *testing.T) {
	eachAbnormal(t, func(t *testing.T, end func()) {
		d, p, _, _ := driverRig(t)
		cfg := LinkConfig{PD: p, QP: QPConfig{Extended: true, GID: standinGID}, Setup: func(l *Link) (Offer, error) {
			if _, err := l.AllocMR(64, MRConfig{}); err != nil {
				return Offer{}, err
			}
			end()
			return Offer{}, nil
		}}
		abnormal(t, "PrepareLink", func() { prepareLink(d, standinGID, cfg) })
		require.Zero(t, p.life.Children("mr"))
		require.Zero(t, p.life.Children("qp"))

		mine, theirs := net.Pipe()
		abnormal(t, "NewLink", func() { NewLink(t.Context(), mine, cfg) })
		require.Zero(t, p.life.Children("qp"))
		go theirs.Write([]byte{1})
		_, err := mine.Read(make([]byte, 1))
		require.NoError(t, err, "the connection is the caller's")

		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		for name, cfg := range map[string]LinkConfig{
			"Setup": cfg,
			"Greet": {Greet: func(context.Context, net.Conn) error { end(); return nil }},
		} {
			abnormal(t, name, func() { DialLink(t.Context(), l.Addr().String(), cfg) })
			c, err := l.Accept()
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, c)
			require.NoError(t, err, "the connection is closed")
			require.NoError(t, c.Close())
		}
		require.Zero(t, p.life.Children("qp"))

		cfg.Setup = func(l *Link) (Offer, error) { return Offer{}, l.AddCloser(endingCloser(end)) }
		link, _, err := prepareLink(d, standinGID, cfg)
		require.NoError(t, err)
		abnormal(t, "Close", func() { link.Close() })
		closes(t, link)
		require.Zero(t, p.life.Children("qp"))
	})
}

type endingCloser func()

func (end endingCloser) Close() error { end(); return nil }

// A link-local address needs a zone, which the kernel's error does not say.
func TestDialLinkWithoutZone(t *testing.T) {
	_, err := DialLink(t.Context(), "[fe80::1]:7471", LinkConfig{})
	require.ErrorContains(t, err, "(name its netdev, as in fe80::1%eth0)")
	var op *net.OpError
	require.ErrorAs(t, err, &op)
}
