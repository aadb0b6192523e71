//go:build linux

package stream_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/stream"
)

// Peers that are not accepted cost a listener no more than its places; the others
// are served when there is room again.
func TestStreamListenerIsBounded(t *testing.T) {
	p := rig.CMPorts(t)
	m := rig.NewCM(t)
	const pending, peers = 3, 12
	l, err := stream.Listen(m, p[1].Addr().String()+":0", stream.Config{Buffer: 64 << 10, Pending: pending})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	cfg := stream.Config{Buffer: 4096}
	cfg.Dial.Local = netip.AddrPortFrom(p[0].Addr(), 0)
	ctx := rig.Context(t)
	type result struct {
		s   *stream.Conn
		err error
	}
	results := make(chan result, peers)
	for range peers {
		go func() {
			s, err := stream.Dial(ctx, m, l.Addr().String(), cfg)
			results <- result{s, err}
		}()
	}
	var streams []*stream.Conn
	connected := func(n int) {
		for len(streams) < n {
			r := <-results
			require.NoError(t, r.err)
			streams = append(streams, r.s)
		}
	}
	connected(pending)
	time.Sleep(2 * time.Second)
	require.Empty(t, results, "streams before anybody calls Accept")
	for range peers {
		c, err := l.Accept()
		require.NoError(t, err)
		defer c.Close()
	}
	connected(peers)
	for _, s := range streams {
		require.NoError(t, s.Close())
	}
}

// A peer that asks and does not go on loses its place.
func TestStreamHandshakeTimeout(t *testing.T) {
	lab.RequireTopology(t, "wire")
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	a, b := streamPair(t, m, stream.Config{}) // the neighbours are known
	require.NoError(t, errors.Join(a.Close(), b.Close()))
	l, err := stream.Listen(m, p[1].Addr().String()+":0",
		stream.Config{Buffer: 4096, Pending: 1, HandshakeTimeout: 300 * time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	local := netip.AddrPortFrom(p[0].Addr(), 0)

	// The listener's replies are lost: it waits for a peer that has none.
	far := lab.Require(t, 2)[1].Netdev
	require.NoError(t, lab.Impair(far, lab.Impairment{Loss: 1}))
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	cfg := stream.Config{Buffer: 4096}
	cfg.Dial.Local = local
	_, err = stream.Dial(brief, m, l.Addr().String(), cfg)
	require.NoError(t, lab.Clear(far))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	s, err := stream.Dial(ctx, m, l.Addr().String(), cfg)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, <-done)
}
