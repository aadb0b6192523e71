package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/internal/pending"
)

// lines are those of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A thousand connections of one address that say nothing keep no client out: the oldest
// ones make room.
func TestDoorBesideSilentConnections(t *testing.T) {
	const flood, places = 1000, 256
	told := make(lines, 2*flood)
	d, err := newDoor(t.Context(), "127.0.0.1:0", slog.New(slog.NewTextHandler(told, nil)))
	require.NoError(t, err)
	s := &Server{links: newQueue(nil), streams: newQueue(nil)}
	tenantKey := bytes.Repeat([]byte("k"), greet.MinKey)
	d.set("shop", tenant{tenantKey, s})
	d.open()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.serve(ctx) }()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", d.listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	for range flood {
		dial()
	}
	for range flood - places {
		require.Contains(t, <-told, pending.ErrCrowded.Error())
	}
	_, err = link.Greet(ctx, dial(), greet.TCP, "shop", tenantKey, nil)
	require.NoError(t, err)
	admitted := <-s.streams.conns
	require.Contains(t, <-told, pending.ErrCrowded.Error(), "the oldest makes room for the client")
	require.NoError(t, admitted.Close())
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, d.close())
	require.Empty(t, told)
}

// Connections of one tenant that greet as for RDMA and then say nothing do not make another tenant's
// client wait. They have places: no more of them wait than the tenant may have clients.
func TestDoorBesideSilentTenant(t *testing.T) {
	const flood = 120
	d, err := newDoor(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	fake := func(name string, clients int) (*Server, []byte) {
		key := bytes.Repeat([]byte(name), greet.MinKey)
		s := bare(&net.TCPAddr{}, Config{Key: key, MaxClients: clients})
		d.set(name, tenant{key, s})
		return s, key
	}
	silent, silentKey := fake("s", flood)
	shop, shopKey := fake("b", 0)
	d.open()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.serve(ctx) }()
	var conns []net.Conn
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", d.listener.Addr().String())
		require.NoError(t, err)
		conns = append(conns, conn)
		return conn
	}
	var greeting sync.WaitGroup
	for range flood {
		conn := dial()
		greeting.Go(func() {
			_, _ = link.Greet(ctx, conn, greet.RDMA, "s", silentKey, nil)
		})
	}
	for range atOnce() {
		<-silent.links.conns
	}
	require.Eventually(t, func() bool {
		silent.mu.Lock()
		defer silent.mu.Unlock()
		return silent.places == flood
	}, patient, time.Millisecond)
	_, err = link.Greet(ctx, dial(), greet.TCP, "s", silentKey, nil)
	require.ErrorIs(t, err, greet.ErrFull, "those that wait have places")
	_, err = link.Greet(ctx, dial(), greet.RDMA, "b", shopKey, func() { t.Error("it is told to wait") })
	require.NoError(t, err)
	require.NoError(t, (<-shop.links.conns).Close())
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	greeting.Wait()
	for _, s := range []*Server{silent, shop} {
		require.NoError(t, s.Close())
	}
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, d.close())
	require.Equal(t, atOnce(), silent.places, "those that were admitted")
}

// A connection before there is a server is reset at once: registering its memory may take long, and a
// greeting without a response lasts for seconds. The kernel keeps later connections until they are
// accepted.
func TestDoorBeforeThereIsAServer(t *testing.T) {
	d, err := newDoor(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	come := func() (net.Conn, error) {
		conn, err := net.Dial("tcp", d.listener.Addr().String())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { conn.Close() })
		return conn, conn.SetDeadline(time.Now().Add(patient))
	}
	for range 3 {
		conn, err := come()
		if err == nil { // it may be reset as soon as this
			_, err = conn.Read(make([]byte, 1))
		}
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it was not told")
	}
	d.open()
	early, err := come()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.serve(ctx) }()
	c := greet.NewClient(greet.TCP, "", bytes.Repeat([]byte("k"), greet.MinKey))
	_, err = early.Write(c.Hello())
	require.NoError(t, err)
	_, err = io.ReadFull(early, make([]byte, greet.ChallengeSize))
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, d.close())

	d, err = newDoor(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, d.close(), "there never was one")
}

// A client that began its greeting before its tenant was revoked is not admitted, even when there is a
// tenant of this name again: its key is the old one.
func TestDoorAfterRevocation(t *testing.T) {
	fake := func() *Server { return &Server{links: newQueue(nil), streams: newQueue(nil)} }
	d := &door{pending: pending.New(), turns: newTurns(1), log: slog.New(slog.DiscardHandler), tenants: map[string]tenant{}}
	leaked, fresh := bytes.Repeat([]byte("l"), greet.MinKey), bytes.Repeat([]byte("f"), greet.MinKey)
	knock := func(revoked bool) *Server {
		was, is := fake(), fake()
		d.set("shop", tenant{leaked, was})
		theirs, ours := net.Pipe()
		defer theirs.Close()
		var greeting sync.WaitGroup
		defer greeting.Wait()
		greeting.Go(func() { d.greet(t.Context(), ours) })
		c := greet.NewClient(greet.TCP, "shop", leaked)
		_, err := theirs.Write(c.Hello())
		require.NoError(t, err)
		b := make([]byte, greet.ChallengeSize)
		_, err = io.ReadFull(theirs, b)
		require.NoError(t, err)
		if revoked {
			d.remove("shop")
			d.set("shop", tenant{fresh, is})
		}
		proof, err := c.Challenged(b)
		require.NoError(t, err)
		_, err = theirs.Write(proof)
		require.NoError(t, err)
		_, err = io.ReadFull(theirs, make([]byte, greet.VerdictSize))
		require.NoError(t, err)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = theirs.Read(make([]byte, 1))
		}()
		select {
		case <-was.streams.conns:
			return was
		case <-is.streams.conns:
			return is
		case <-closed:
			return nil
		}
	}
	require.NotNil(t, knock(false))
	require.Nil(t, knock(true))
}
