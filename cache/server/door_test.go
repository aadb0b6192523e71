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

	"github.com/goverbs/goverbs/cache/internal/greet"
)

// stranger is a connection that says nothing, and knows whether it was closed.
type stranger struct {
	net.Conn
	closed bool
}

func (s *stranger) Close() error {
	s.closed = true
	return nil
}

// Who has been at the door for long goes when others come, the oldest first, and nobody else:
// others are let wait.
func TestDoor(t *testing.T) {
	d := &door{left: make(chan struct{}, 1)}
	begin := time.Now()
	var all [maxGreeting]stranger
	for i := range all {
		require.Zero(t, d.enter(&all[i], begin.Add(time.Duration(i)*time.Millisecond)))
	}
	var next, after stranger
	require.Equal(t, patience-100*time.Millisecond, d.enter(&next, begin.Add(100*time.Millisecond)))
	require.False(t, all[0].closed)
	require.Zero(t, d.enter(&next, begin.Add(patience)))
	require.True(t, all[0].closed)
	require.False(t, all[1].closed)
	require.Len(t, d.greeting, maxGreeting)
	require.Equal(t, time.Millisecond, d.enter(&after, begin.Add(patience)))
	d.leave(&all[7])
	require.Len(t, d.left, 1, "who waits is told")
	require.Zero(t, d.enter(&after, begin.Add(patience)))
	require.Len(t, d.greeting, maxGreeting)
	require.False(t, all[1].closed)
	require.False(t, all[7].closed)
	d.leave(&all[0]) // it is not there any more
	require.Len(t, d.greeting, maxGreeting)
}

// Who comes before there is a server hears so at once: registering its memory may take long, and a
// greeting that nobody answers lasts for seconds. Who comes after that is waited for by the kernel.
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

// A client that began its greeting before its tenant was revoked is nobody's, even when there is
// a tenant of this name again: its key is the old one.
func TestDoorAfterRevocation(t *testing.T) {
	fake := func() *Server { return &Server{links: newQueue(nil), streams: newQueue(nil)} }
	d := &door{left: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler), tenants: map[string]tenant{}}
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
