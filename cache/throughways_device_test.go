//go:build linux

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
)

// A client that closes says that it READs nothing any more, so it holds up nothing, and the target stays.
func TestGoodbyeThroughAnInitiator(t *testing.T) {
	s := serve(t, byDC)
	ctx, cfg := within(t), near(t, cache.Config{DC: initiator(t, 2)})
	for n := range 5 {
		c, err := cache.Dial(ctx, s.Addr().String(), cfg)
		require.NoError(t, err)
		require.NoError(t, c.Set(ctx, key(n), cache.Item{Value: []byte("old")}, 0))
		_, err = c.Get(ctx, key(n))
		require.NoError(t, err)
		set(t, s, key(n), []byte("new"))
		require.NotZero(t, s.Stats().Quarantine, "it may READ the old one")
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool { st := s.Stats(); return st.Quarantine == 0 && st.Clients == 0 }, stuck, time.Millisecond)
		st := s.Stats()
		require.Zero(t, st.Cut)
		require.Zero(t, st.DC.Gone)
		require.Zero(t, st.DC.Replaced)
	}
}

// The server waits for a client that is gone without a goodbye, and does not cut it off.
func TestGoneWithoutGoodbye(t *testing.T) {
	s := serve(t, server.Config{Lease: 200 * time.Millisecond, DC: server.DCConfig{Responders: 4}})
	r := strand(t, s)
	require.NoError(t, r.conn.Close())
	require.Eventually(t, func() bool { return s.Stats().DC.Gone == 1 }, stuck, time.Millisecond)
	set(t, s, key(1), []byte("old"))
	set(t, s, key(1), []byte("new"))
	require.Eventually(t, func() bool { st := s.Stats(); return st.Quarantine == 0 && st.DC.Gone == 0 }, stuck, time.Millisecond)
	st := s.Stats()
	require.Zero(t, st.Cut)
	require.NotZero(t, st.DC.Replaced)
}

// Hits through an initiator allocate nothing: not single ones, nor many, nor long ones, nor by buckets.
func TestHitsThroughAnInitiatorDoNotAllocate(t *testing.T) {
	s := serve(t, byDC)
	i, ctx := initiator(t, 2), within(t)
	c := dial(t, s.Addr().String(), cache.Config{DC: i, Pacer: narrow(t)}) // that of the device has others' pauses, too
	const n = 20
	name, long := []byte("long"), bytes.Repeat([]byte("long"), 40_000)
	require.NoError(t, c.Set(ctx, name, cache.Item{Value: long}, 0))
	var keys [][]byte
	for k := range n {
		keys = append(keys, key(k))
		require.NoError(t, c.Set(ctx, key(k), cache.Item{Value: []byte(strconv.Itoa(k))}, 0))
	}
	whole(t, c, n+1)
	dst, calls := make([]byte, len(long)), c.Stats().Calls
	var into []cache.Result
	allocatesNothing(t, 100, func() {
		if it, err := c.GetInto(ctx, keys[3], dst); err != nil || string(it.Value) != "3" {
			t.Error(it, err)
		}
	})
	allocatesNothing(t, 10, func() {
		if it, err := c.GetInto(ctx, name, dst); err != nil || !bytes.Equal(it.Value, long) {
			t.Error(err)
		}
	})
	allocatesNothing(t, 10, func() {
		into = c.GetMulti(ctx, keys, into)
		for k := range into {
			if into[k].Err != nil {
				t.Error(into[k].Err)
			}
		}
	})
	require.Equal(t, calls, c.Stats().Calls)
	require.Zero(t, c.Stats().Blocked)
}

// other makes a server, and a relay of its connections that changes what the server says of its target.
func other(t *testing.T, cfg server.Config, change func(*wire.Target)) (s *server.Server, relay string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(lab.Require(t, 2)[1].Addr.String(), "0"))
	require.NoError(t, err)
	cfg.Names = []string{l.Addr().String()}
	s = serve(t, cfg)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go pass(c, s.Addr().String(), change)
		}
	}()
	return s, l.Addr().String()
}

func pass(client net.Conn, address string, change func(*wire.Target)) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	hello, err := link.Message(client)
	if err != nil {
		return
	}
	_, _ = server.Write(hello)
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	if h, err := greet.ReadHello(hello); err == nil && h.Transport == greet.DC {
		answer, err := link.Message(server)
		said := make([]byte, wire.HeaderSize)
		if err == nil {
			_, err = io.ReadFull(server, said)
		}
		if err != nil {
			return
		}
		first, _ := wire.ReadHeader(said)
		said = slices.Grow(said, first.Length)[:first.Length]
		_, _ = io.ReadFull(server, said[wire.HeaderSize:])
		if target, err := wire.ReadTarget(said); err == nil {
			change(&target)
			said = wire.AppendTarget(nil, &target)
		}
		_, _ = client.Write(append(answer, said...))
	}
	_, _ = io.Copy(client, server)
}

// A client that cannot READ through the target connects without: by RDMA, or else by TCP, unless that is
// refused. It says why.
func TestAnotherWayThanTheInitiator(t *testing.T) {
	s, wrong := other(t, byDC, func(target *wire.Target) { target.Key++ }) // no target has that key
	i, ctx := initiatorAs(t, dc.InitiatorConfig{Contexts: 2, ConnectTimeout: 300 * time.Millisecond}), within(t)
	closed := initiator(t, 1)
	require.NoError(t, closed.Close())
	for name, c := range map[string]struct {
		address string
		cfg     cache.Config
		want    cache.Transport
	}{
		"all is well":                {s.Addr().String(), cache.Config{DC: i, RequireRDMA: true}, cache.DC},
		"the target does not answer": {wrong, cache.Config{DC: i, RequireRDMA: true}, cache.RDMA},
		"nor is there other RDMA":    {wrong, cache.Config{DC: i, Dialer: tcpOnly()}, cache.TCP},
		"which was required":         {wrong, cache.Config{DC: i, Dialer: tcpOnly(), RequireRDMA: true}, ""},
		"the initiator was closed":   {s.Addr().String(), cache.Config{DC: closed}, cache.RDMA},
	} {
		t.Run(name, func(t *testing.T) {
			if c.cfg.Dialer == nil {
				c.cfg = near(t, c.cfg)
			}
			client, err := cache.Dial(ctx, c.address, c.cfg)
			if c.want == "" {
				require.ErrorIs(t, err, dc.ErrUnreachable)
				return
			}
			require.NoError(t, err)
			defer client.Close()
			require.NoError(t, client.Set(ctx, key(1), cache.Item{Value: []byte("v")}, 0))
			it, err := client.Get(ctx, key(1))
			require.NoError(t, err)
			require.Equal(t, "v", string(it.Value))
			st := client.Stats()
			require.Equal(t, c.want, st.Transport, st.FallbackReason)
			require.Equal(t, c.want == cache.DC, st.FallbackReason == "", st.FallbackReason)
		})
	}
	require.Eventually(t, func() bool { st := s.Stats(); return st.Clients+st.Streams == 0 }, stuck, time.Millisecond)
	require.Zero(t, s.Stats().DC.Gone, "all have said goodbye")
}

// When the initiator closes under its clients they go on by queue pairs of their own.
func TestInitiatorClosesUnderItsClients(t *testing.T) {
	s := serve(t, byDC)
	i, ctx := initiator(t, 2), within(t)
	all := []*cache.Client{dial(t, s.Addr().String(), cache.Config{DC: i}), dial(t, s.Addr().String(), cache.Config{DC: i})}
	require.NoError(t, all[0].Set(ctx, key(1), cache.Item{Value: []byte("v")}, 0))
	over, done := context.WithCancel(ctx)
	ended := make(chan error, len(all))
	for _, c := range all {
		whole(t, c, 1)
		go func() {
			for over.Err() == nil {
				if it, err := c.Get(ctx, key(1)); err != nil || string(it.Value) != "v" {
					ended <- errors.Join(errors.New("a GET while the initiator closes"), err)
					return
				}
			}
			ended <- nil
		}()
	}
	require.NoError(t, i.Close())
	for _, c := range all {
		require.Eventually(t, func() bool { return c.Stats().Transport == cache.RDMA }, stuck, time.Millisecond)
		require.NotEmpty(t, c.Stats().FallbackReason)
	}
	done()
	for range all {
		require.NoError(t, <-ended)
	}
}

// A client that closes while a READ through its initiator is under way without a response waits for its end
// and no longer; the GET returns that the client was closed.
func TestCloseDuringAGETThroughAnInitiator(t *testing.T) {
	s := serve(t, byDC)
	ctx := within(t)
	c := dial(t, s.Addr().String(), cache.Config{DC: hasty(t)})
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("v")}, 0))
	whole(t, c, 1)
	_, err := c.Get(ctx, key(1))
	require.NoError(t, err)
	lab.ImpairWire(t, lab.Impairment{Loss: 1})
	reads, got := c.Stats().Reads, make(chan error, 1)
	go func() {
		_, err := c.Get(ctx, key(1))
		got <- err
	}()
	require.Eventually(t, func() bool { return c.Stats().Reads > reads }, stuck, time.Millisecond)
	begun := time.Now()
	require.NoError(t, c.Close())
	require.Less(t, time.Since(begun), stuck/2)
	require.ErrorIs(t, <-got, cache.ErrClosed)
}

// Another life of a server at the same address has another target, with another key. Clients of the last one
// find it, and nothing of before.
func TestServerComesBackWithAnotherTarget(t *testing.T) {
	lab.NoLeftovers(t)
	ctx, at := within(t), net.JoinHostPort(lab.Require(t, 2)[1].Addr.String(), "0")
	c := (*cache.Client)(nil)
	for life := range 3 {
		s, err := server.Listen(ctx, at, server.Config{Memory: 4 << 20, DC: server.DCConfig{Responders: 2}})
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- s.Serve(context.Background()) }()
		if at = s.Addr().String(); c == nil {
			c = dial(t, at, cache.Config{DC: initiator(t, 1)})
		}
		_, err = c.Get(ctx, key(1))
		require.ErrorIs(t, err, cache.ErrNotFound, "life %d", life)
		require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: key(life)}, 0))
		whole(t, c, 1)
		hits := c.Stats().Hits
		it, err := c.Get(ctx, key(1))
		require.NoError(t, err)
		require.Equal(t, string(key(life)), string(it.Value))
		st := c.Stats()
		require.Equal(t, hits+1, st.Hits)
		require.Equal(t, cache.DC, st.Transport, st.FallbackReason)
		require.Equal(t, s.Epoch(), st.Epoch)
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-served, server.ErrClosed)
	}
}
