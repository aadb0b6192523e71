package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
)

// counted is a store that has every key, and counts.
type counted struct {
	value []byte
	calls atomic.Int64
}

func (s *counted) Do(context.Context, *kv.Request) (kv.Reply, error) {
	s.calls.Add(1)
	return kv.Reply{Status: kv.OK, Value: s.value}, nil
}

func (s *counted) StatLines() [][2]string { return nil }

// gone waits until the gateway has no connection.
func gone(t *testing.T, s *Server) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Stats().Connections == 0 }, stuck, time.Millisecond)
}

// A client that has gone has no more keys looked up.
func TestClientLeavesInTheMiddleOfGet(t *testing.T) {
	const keys = 100_000
	store := &counted{value: make([]byte, 64<<10)}
	s, addr := newServer(t, Config{Store: store})
	p := dial(t, "tcp", addr)
	_, err := p.nc.Write([]byte("get" + strings.Repeat(" a", keys) + "\r\n"))
	require.NoError(t, err)
	_, err = io.ReadFull(p.nc, make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, p.nc.(*net.TCPConn).SetLinger(0))
	require.NoError(t, p.nc.Close())
	gone(t, s)
	require.Less(t, store.calls.Load(), int64(keys/2))
}

// closes waits until the other side closes.
func (p *peer) closes() {
	p.t.Helper()
	require.NoError(p.t, p.nc.SetReadDeadline(time.Now().Add(stuck)))
	_, err := io.Copy(io.Discard, p.nc)
	require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded)
}

// A client that gives no password has no place for long, whatever else it sends, or does not take.
func TestUnauthenticatedConnectionsHaveToGo(t *testing.T) {
	_, addr := newServer(t, Config{Users: map[string]string{"ann": "secret"}, Login: 3 * time.Second})
	ann, silent, loud := dial(t, "tcp", addr), dial(t, "tcp", addr), dial(t, "tcp", addr)
	require.Equal(t, "STORED\r\n", ann.ask("set x 0 0 10\r\nann secret\r\n"))
	require.NoError(t, loud.nc.SetWriteDeadline(time.Now().Add(stuck)))
	for { // no reply is taken
		if _, err := loud.nc.Write(bytes.Repeat([]byte("get a\r\n"), 10_000)); err != nil {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			break
		}
	}
	silent.closes()
	require.Equal(t, "END\r\n", ann.ask("get a\r\n"), "who has said it may be quiet")
}

// Nor does one that has to begin TLS and does not.
func TestUnauthenticatedClientsBeginTLS(t *testing.T) {
	ours, _ := certificate(t, "cache")
	_, addr := newServer(t, Config{TLS: ours, Login: 200 * time.Millisecond})
	dial(t, "tcp", addr).closes()
}

// served is a connection of a gateway's, when it has ended.
func served(t *testing.T, cfg Config, users map[string]string, say string, answer string) *conn {
	s, err := New(cfg)
	require.NoError(t, err)
	theirs, ours := net.Pipe()
	c, over := newConn(s, ours, users), make(chan struct{})
	go func() {
		defer close(over)
		c.serve()
		_ = ours.Close()
	}()
	require.NoError(t, theirs.SetDeadline(time.Now().Add(stuck)))
	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = theirs.Write([]byte(say))
	}()
	b := make([]byte, len(answer))
	_, err = io.ReadFull(theirs, b)
	require.NoError(t, err)
	require.Equal(t, answer, string(b))
	<-said
	require.NoError(t, theirs.Close())
	<-over
	return c
}

// A connection has memory for what has come, and keeps little of it.
func TestMemoryOfAConnection(t *testing.T) {
	users := map[string]string{"ann": "secret"}
	cfg := Config{Store: newLocal(t), MaxItem: 1 << 30}
	c := served(t, cfg, nil, "set a 0 0 1000000000\r\n", "")
	require.LessOrEqual(t, cap(c.data), 4<<20, "for a value that was announced")
	c = served(t, cfg, nil, "set a 0 0 1000000\r\n"+strings.Repeat("x", 1000000)+"\r\n", "STORED\r\n")
	require.LessOrEqual(t, cap(c.data), keep, "after a long value")
	c = served(t, cfg, nil, "get"+strings.Repeat(" b", 100_000)+"\r\n", "END\r\n")
	require.LessOrEqual(t, cap(c.line), keep, "after a long line")
	c = served(t, cfg, users, "get a\r\nget"+strings.Repeat(" a", 100_000), "CLIENT_ERROR unauthenticated\r\n")
	require.LessOrEqual(t, cap(c.line), keep, "for the line of an unauthenticated client")
}

// A key that came by RDMA may be any bytes. None of them ends a line here.
func TestKeyThatNoLineCanHave(t *testing.T) {
	store := newLocal(t)
	_, addr := newServer(t, Config{Store: store})
	for _, key := range []string{"a\r\nSTORED", "a b", "\x00"} {
		a, err := store.Do(t.Context(), &kv.Request{Op: kv.OpSet, Key: []byte(key), Value: []byte("v")})
		require.NoError(t, err)
		require.Equal(t, kv.OK, a.Status)
		name := base64.StdEncoding.EncodeToString([]byte(key))
		got := dial(t, "tcp", addr).ask("me " + name + " b\r\n")
		require.Regexp(t, "^ME "+regexp.QuoteMeta(name)+" exp=[^\n]*\r\n$", got)
	}
}
