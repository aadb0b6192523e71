package lockoffload

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/accept"
	"github.com/goverbs/goverbs/internal/pending"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// gate is a target that has nothing behind its door: whatever it made for a client that it
// must not admit would be a nil pointer.
func gate(t *testing.T) *Listener {
	l := &Listener{cfg: ListenConfig{Key: []byte("sixteen or more bytes"), Logger: silent()}, pending: pending.New(), links: map[uint64]*agentConn{}}
	l.over, l.stop = context.WithCancel(context.Background())
	t.Cleanup(l.stop)
	return l
}

// connect has the target welcome a connection.
func connect(t *testing.T, l *Listener) (conn net.Conn, over chan error) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	require.NoError(t, near.SetDeadline(time.Now().Add(time.Minute)))
	over = make(chan error, 1)
	go func() { over <- l.welcome(far) }()
	return near, over
}

func TestWelcomeNeedsTheKey(t *testing.T) {
	l := gate(t)
	say := func(key []byte, kind wire.Kind) (wire.Status, error) {
		conn, over := connect(t, l)
		c, err := wire.ReadChallenge(conn)
		require.NoError(t, err)
		h := wire.Hello{Kind: kind, Nonce: wire.Nonce{1}, Body: []byte("no endpoint")}
		_, err = conn.Write(h.Append(nil, key, c))
		require.NoError(t, err)
		status, _, err := wire.ReadReply(conn, l.cfg.Key, c, h.Nonce)
		require.Error(t, <-over)
		require.Zero(t, l.pending.Len())
		return status, err
	}
	_, err := say([]byte("sixteen or more Bytes"), wire.Session)
	require.ErrorIs(t, err, wire.ErrKey)
	for _, kind := range []wire.Kind{wire.Session, wire.Agent} {
		status, err := say(l.cfg.Key, kind)
		require.NoError(t, err)
		require.Equal(t, wire.Refused, status, "it does not say where it is")
	}
}

// Close of the target does not wait for a silent connection.
func TestWelcomeEndsWithTheListener(t *testing.T) {
	l := gate(t)
	conn, over := connect(t, l)
	_, err := wire.ReadChallenge(conn)
	require.NoError(t, err)
	l.stop()
	ends(t, func() { require.Error(t, <-over) })
	conn, over = connect(t, l)
	_, err = io.Copy(io.Discard, conn)
	require.NoError(t, err, "it is closed")
	require.Error(t, <-over)
}

// failing is a net.Listener for which there is no room, then has a connection, and then fails.
type failing struct {
	net.Listener
	errs  int
	conns chan net.Conn
}

func (f *failing) Accept() (net.Conn, error) {
	if f.errs > 0 {
		f.errs--
		return nil, syscall.EMFILE
	}
	conn, open := <-f.conns
	if !open {
		return nil, errOnce
	}
	return conn, nil
}

var errServer = errors.New("the server's")

// A target that has no room for a connection for a moment says so, and goes on.
func TestAcceptGoesOn(t *testing.T) {
	l := gate(t)
	tcp := &failing{errs: 3, conns: make(chan net.Conn)}
	l.tcp = tcp
	l.accepting, l.srv = accept.New(tcp, nil), &Server{cfg: ServerConfig{PD: new(verbs.PD)}, trouble: errServer}
	over := make(chan struct{})
	go func() { defer close(over); l.accept() }()
	require.Eventually(t, func() bool { return errors.Is(l.Err(), errShort) }, time.Minute, 50*time.Microsecond)
	near, far := net.Pipe()
	defer near.Close()
	tcp.conns <- far
	require.NoError(t, near.SetDeadline(time.Now().Add(time.Minute)))
	_, err := wire.ReadChallenge(near)
	require.NoError(t, err)
	require.NotErrorIs(t, l.Err(), errShort)
	close(tcp.conns)
	ends(t, func() { <-over })
	require.ErrorIs(t, l.Err(), errOnce)
	near.Close()
	ends(t, l.work.Wait)
}

func TestListenConfig(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer lis.Close()
	good := ListenConfig{Layout: Layout{Slots: 1, Size: 8}, Key: []byte("sixteen bytes...")}
	short, window, layout := good, good, good
	short.Key = short.Key[:15]
	window.Agent.Limits.Window = maxDialed + 1
	layout.Layout.Size = -1
	for _, cfg := range []ListenConfig{short, window, layout, {}} {
		_, err := NewListener(new(verbs.PD), lis, cfg)
		require.ErrorIs(t, err, ErrConfig)
	}
	_, err = NewListener(nil, lis, good)
	require.ErrorIs(t, err, ErrConfig)
	_, err = Dial(context.Background(), new(verbs.PD), lis.Addr().String(), DialConfig{Key: short.Key})
	require.ErrorIs(t, err, ErrConfig)
}

// A target that is closed, or has no agent, connects no client to one.
func TestAttachToNoAgent(t *testing.T) {
	l := gate(t)
	_, err := l.attach(nil, 1)
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	l.closed = true
	_, err = l.attach(nil, 1)
	require.ErrorIs(t, err, ErrClosed)
	require.Empty(t, l.links)
}

// Connections are kept alive below TLS, too.
func TestOverTCP(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer lis.Close()
	conn, err := net.Dial("tcp", lis.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	for _, c := range []net.Conn{conn, tls.Client(conn, &tls.Config{})} {
		tcp, ok := overTCP(c)
		require.True(t, ok)
		require.Equal(t, conn, tcp)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	_, ok := overTCP(a)
	require.False(t, ok)
}
