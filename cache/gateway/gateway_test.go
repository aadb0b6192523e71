package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
)

func TestNewRefuses(t *testing.T) {
	_, err := New(Config{})
	require.Error(t, err)
}

// The reason comes in the protocol that was spoken.
func TestBinaryIsRefused(t *testing.T) {
	s, addr := newServer(t, Config{})
	q := make([]byte, 24)
	q[0], q[1], q[12] = 0x80, 0x0a, 7
	got := dial(t, "tcp", addr).rest(string(q))
	require.Equal(t, "\x81\x0a", got[:2])
	require.Equal(t, byte(0x81), got[7])
	require.Equal(t, byte(7), got[12])
	require.Contains(t, got, "not supported: use memcached's text or meta protocol")
	require.Len(t, got, 24+int(got[11]))
	require.Equal(t, uint64(1), s.Stats().Binary)
}

func TestLimits(t *testing.T) {
	s, addr := newServer(t, Config{MaxConn: 1, MaxItem: 100})
	p := dial(t, "tcp", addr)
	require.Equal(t, "STORED\r\n", p.ask("set a 0 0 10\r\n0123456789\r\n"))
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.Equal(t, "ERROR Too many open connections\r\n", (&peer{t, nc}).rest(""))
	_ = nc.Close()
	require.Equal(t, uint64(1), s.Stats().Rejected)
	require.Equal(t, "SERVER_ERROR object too large for cache\r\nEND\r\n", p.ask("set a 0 0 60\r\n"+strings.Repeat("x", 60)+"\r\nget a\r\n"),
		"what was not stored does not leave the old value behind")
	require.Contains(t, p.ask("get "+strings.Repeat("a ", 20000)+"\r\n"), "END")
	require.Empty(t, p.rest("set "+strings.Repeat("a", 20000)+"\r\n"), "a line that is too long ends the connection")
}

// Whatever comes, nothing panics and the connection ends.
func FuzzConnection(f *testing.F) {
	s, err := New(Config{Store: newLocal(f)})
	require.NoError(f, err)
	f.Add([]byte("set a 0 0 1\r\nx\r\nmg a v k\r\nma a N0 J5\r\nget a\r\n"))
	f.Add([]byte("\x80\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() { newConn(s, theirs, nil).serve(); _ = theirs.Close(); close(done) }()
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		go func() { _, _ = ours.Write(b); _ = ours.Close() }()
		<-done
	})
}

// A client that has sent a whole command before the end gets its reply; others are disconnected.
func TestShutdown(t *testing.T) {
	l := newLocal(t)
	slow := &slowStore{local: l, begun: make(chan struct{}, 1), proceed: make(chan struct{})}
	s, addr := newServer(t, Config{Store: slow, Idle: time.Minute})
	busy, idle, half := dial(t, "tcp", addr), dial(t, "tcp", addr), dial(t, "tcp", addr)
	require.Equal(t, "END\r\n", idle.ask("get a\r\n"))
	_, err := half.nc.Write([]byte("set a 0 0 10\r\nhal"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Stats().Connections == 3 }, stuck, time.Millisecond, "all are taken in")
	slow.slow.Store(true)
	answer := make(chan string, 1)
	go func() { answer <- busy.rest("set b 0 0 1\r\nx\r\nget b\r\n") }()
	<-slow.begun
	shut := make(chan error, 1)
	go func() { shut <- s.Shutdown(t.Context()) }()
	require.Empty(t, idle.rest(""))
	require.Empty(t, half.rest(""))
	slow.slow.Store(false)
	close(slow.proceed)
	require.NoError(t, <-shut)
	require.Contains(t, <-answer, "STORED\r\n")
	_, err = net.Dial("tcp", addr)
	require.Error(t, err)
}

// A command that does not end is not waited for longer than the context.
func TestShutdownEndsWithItsContext(t *testing.T) {
	slow := &slowStore{local: newLocal(t), begun: make(chan struct{}, 1), proceed: make(chan struct{})}
	slow.slow.Store(true)
	s, addr := newServer(t, Config{Store: slow})
	p := dial(t, "tcp", addr)
	_, err := p.nc.Write([]byte("get a\r\n"))
	require.NoError(t, err)
	<-slow.begun
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
}

// slowStore waits, if it is told to, until it may go or the gateway closes.
type slowStore struct {
	*local
	slow           atomic.Bool
	begun, proceed chan struct{}
}

func (s *slowStore) Do(ctx context.Context, q *kv.Request) (kv.Reply, error) {
	if s.slow.Load() {
		s.begun <- struct{}{}
		select {
		case <-s.proceed:
		case <-ctx.Done():
			return kv.Reply{}, ctx.Err()
		}
	}
	return s.local.Do(ctx, q)
}

// What memcached has learned after 1.6.18 is what that says of it, and a get of a key that is too long leaves the
// replies before it alone.
func TestNotOfMemcached(t *testing.T) {
	_, addr := newServer(t, Config{})
	p := dial(t, "tcp", addr)
	for _, c := range [][2]string{
		{"ms a 1 E5\r\nx\r\n", "CLIENT_ERROR invalid flag\r\n"},
		{"mg a E5\r\n", "CLIENT_ERROR invalid flag\r\n"},
		{"ma a E5\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
		{"md a E5\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
		{"md a x\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
		{"ms a 1 s\r\nx\r\n", "HD\r\n"},
		{"ms none 1 MA N0\r\nx\r\n", "NS\r\n"},
		{"set b 0 0 1\r\nx\r\nget b\r\nget b " + strings.Repeat("k", 251) + "\r\n", "STORED\r\nVALUE b 0 1\r\nx\r\nEND\r\nCLIENT_ERROR bad command line format\r\n"},
	} {
		require.Equal(t, c[1], p.ask(c[0]), c[0])
	}
}

// A record that the store finds too long, although memcached would not, is not stored, and that is said; nor is what
// was there before taken for it. Of append and prepend it is what both are together.
func TestTooLongForTheStore(t *testing.T) {
	l := newLocal(t)
	_, addr := newServer(t, Config{Store: l, MaxItem: 32 << 20})
	p := dial(t, "tcp", addr)
	const tooLarge = "SERVER_ERROR object too large for cache\r\n"
	n := 8<<20 - 60 // the store has room for that, but not for the key and the header, too
	long := strings.Repeat("x", n)
	for _, c := range []struct{ command, answer, left string }{
		{fmt.Sprintf("set k 0 0 %d", n), tooLarge, "END\r\n"},
		{fmt.Sprintf("ms k %d", n), tooLarge, "END\r\n"},
		{fmt.Sprintf("ms k %d MR", n), tooLarge, "END\r\n"},
		{fmt.Sprintf("replace k 0 0 %d", n), tooLarge, "VALUE k 0 3\r\nold\r\nEND\r\n"},
		{fmt.Sprintf("cas k 0 0 %d 1", n), "EXISTS\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n"},
		{fmt.Sprintf("append k 0 0 %d", n), "NOT_STORED\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n"},
		{fmt.Sprintf("ms k %d MP", n), "NS\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n"},
		{fmt.Sprintf("add other 0 0 %d", n), tooLarge, "VALUE k 0 3\r\nold\r\nEND\r\n"},
	} {
		require.Equal(t, "STORED\r\n", p.ask("set k 0 0 3\r\nold\r\n"))
		require.Equal(t, c.answer, p.ask(c.command+"\r\n"+long+"\r\n"), c.command)
		require.Equal(t, c.left, p.ask("get k other\r\n"), c.command)
	}
}
