package server

import (
	"bytes"
	"context"
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

// A thousand connections of one address that say nothing keep no client out: the oldest
// ones make room.
func TestDoorBesideSilentConnections(t *testing.T) {
	const flood, places = 1000, 256
	var log bytes.Buffer
	d, err := newAdmission(t.Context(), "127.0.0.1:0", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	s := bare(&net.TCPAddr{}, Config{})
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
	crowded := func(n uint64) {
		require.Eventually(t, func() bool { return d.refused.stats() == Refused{Crowded: n} }, patient, time.Millisecond)
	}
	crowded(flood - places)
	_, err = link.Greet(ctx, dial(), greet.Hello{Transport: greet.TCP, Tenant: "shop"}, tenantKey, nil)
	require.NoError(t, err)
	admitted := <-s.streams.conns
	crowded(flood - places + 1) // the oldest makes room for the client
	require.NoError(t, admitted.Close())
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, d.close())
	require.Contains(t, log.String(), pending.ErrCrowded.Error())
}

// Connections of one tenant that greet as for RDMA and then say nothing do not make another tenant's
// client wait. They have places: no more of them wait than the tenant may have clients.
func TestDoorBesideSilentTenant(t *testing.T) {
	const flood = 120
	d, err := newAdmission(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
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
	for i := range flood {
		conn := dial()
		h := greet.Hello{Transport: greet.RDMA, Tenant: "s", Client: [16]byte{1, byte(i)}}
		greeting.Go(func() { _, _ = link.Greet(ctx, conn, h, silentKey, nil) })
	}
	for range atOnce() {
		<-silent.links.conns
	}
	require.Eventually(t, func() bool {
		silent.mu.Lock()
		defer silent.mu.Unlock()
		return len(silent.places) == flood
	}, patient, time.Millisecond)
	_, err = link.Greet(ctx, dial(), greet.Hello{Transport: greet.TCP, Tenant: "s"}, silentKey, nil)
	require.ErrorIs(t, err, greet.ErrFull, "clients that wait have places")
	_, err = link.Greet(ctx, dial(), greet.Hello{Transport: greet.RDMA, Tenant: "b"}, shopKey, func() { t.Error("it is told to wait") })
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
	require.Len(t, silent.places, atOnce(), "admitted clients")
}

// A client that was led here is told where it is, whether the server knows its names or not, and whether it
// has a key or not.
func TestDoorOfAnotherServer(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte("k"), greet.MinKey)} {
		for _, names := range [][]string{nil, {"cache1:7481"}} {
			d, err := newAdmission(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			s := bare(&net.TCPAddr{}, Config{Names: names})
			d.set("", tenant{key, s})
			d.open()
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- d.serve(ctx) }()
			here := d.listener.Addr().String()
			greeted := func(wrote string, conn net.Conn) error {
				defer conn.Close()
				_, err := link.Greet(ctx, conn, greet.Hello{Transport: greet.TCP, Server: wrote}, key, nil)
				return err
			}
			dial := func() net.Conn {
				conn, err := net.Dial("tcp", here)
				require.NoError(t, err)
				return conn
			}
			for _, wrote := range append(names, here) {
				require.NoError(t, greeted(wrote, dial()))
				require.NoError(t, (<-s.streams.conns).Close())
			}
			want := &greet.OtherError{Named: "cache2:7481", Here: here}
			if names != nil {
				want.Here = names[0]
			}
			require.Equal(t, want, greeted("cache2:7481", elsewhere{dial()}))
			cancel()
			require.NoError(t, <-served)
			require.NoError(t, d.close())
			require.NoError(t, s.Close())
		}
	}
}

// elsewhere is a connection to another address, which a relay passes on.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 7481} }

// A connection before there is a server is reset at once: registering its memory may take long, and a
// greeting without a response lasts for seconds. The kernel keeps later connections until they are
// accepted.
func TestDoorBeforeThereIsAServer(t *testing.T) {
	d, err := newAdmission(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
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
	c := greet.NewClient(greet.Hello{Transport: greet.TCP}, bytes.Repeat([]byte("k"), greet.MinKey))
	_, err = early.Write(c.Hello())
	require.NoError(t, err)
	_, err = link.Message(early)
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, d.close())

	d, err = newAdmission(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, d.close(), "there never was one")
}

// A client that began its greeting before its tenant was revoked is not admitted, even when there is a
// tenant of this name again: its key is the old one.
func TestDoorAfterRevocation(t *testing.T) {
	fake := func() *Server { return bare(&net.TCPAddr{}, Config{}) }
	d := &admission{pending: pending.New(), turns: newTurns(1), log: slog.New(slog.DiscardHandler), tenants: map[string]tenant{}}
	leaked, fresh := bytes.Repeat([]byte("l"), greet.MinKey), bytes.Repeat([]byte("f"), greet.MinKey)
	knock := func(revoked bool) *Server {
		was, is := fake(), fake()
		d.set("shop", tenant{leaked, was})
		theirs, ours := net.Pipe()
		defer theirs.Close()
		var greeting sync.WaitGroup
		defer greeting.Wait()
		greeting.Go(func() { d.greet(t.Context(), ours) })
		c := greet.NewClient(greet.Hello{Transport: greet.TCP, Tenant: "shop"}, leaked)
		_, err := theirs.Write(c.Hello())
		require.NoError(t, err)
		b, err := link.Message(theirs)
		require.NoError(t, err)
		if revoked {
			d.remove("shop")
			d.set("shop", tenant{fresh, is})
		}
		proof, err := c.HandleChallenge(b)
		require.NoError(t, err)
		_, err = theirs.Write(proof)
		require.NoError(t, err)
		_, err = link.Message(theirs)
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
