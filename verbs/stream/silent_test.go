//go:build linux

package stream_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/pending"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

// crowded counts the lines of a log that say that a request made room for others.
type crowded chan struct{}

func (c crowded) Write(b []byte) (int, error) {
	if strings.Contains(string(b), pending.ErrCrowded.Error()) {
		c <- struct{}{}
	}
	return len(b), nil
}

// Peers of one address that ask and do not go on, more than a listener keeps, leave room for
// one of another address.
func TestListenerBesideSilentPeers(t *testing.T) {
	lab.RequireTopology(t, "wire")
	p := rig.CMPorts(t)
	const flood, places = 24, 16 // with hundreds, Linux 6.1 loses requests for minutes
	defer stream.SetRequestsOfSource(places)()
	told := make(crowded, 2*flood)
	m, err := rdmacm.Open(rdmacm.Config{Logger: slog.New(slog.NewTextHandler(told, nil))})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	l, err := stream.Listen(m, p[1].Addr().String()+":0", stream.Config{Buffer: 4096, Messages: 8, Pending: 4, HandshakeTimeout: time.Hour})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()

	// The listener's replies are lost; its own host's clients do not use the wire.
	ends := lab.Require(t, 2)
	far, err := net.InterfaceByName(ends[1].Netdev)
	require.NoError(t, err)
	neighbour := []string{ends[1].Addr.String(), "lladdr", far.HardwareAddr.String(), "dev", ends[0].Netdev}
	lab.IP(t, append([]string{"neigh", "replace"}, append(neighbour, "nud", "permanent")...)...)
	defer lab.IP(t, append([]string{"neigh", "replace"}, append(neighbour, "nud", "stale")...)...)
	require.NoError(t, lab.Impair(ends[1].Netdev, lab.Impairment{Loss: 1}))
	defer func() { require.NoError(t, lab.Clear(ends[1].Netdev)) }()
	dial := func(ctx context.Context, from netip.Addr) (*stream.Conn, error) {
		cfg := stream.Config{Buffer: 4096, Messages: 8}
		cfg.Dial.Local = netip.AddrPortFrom(from, 0)
		return stream.Dial(ctx, m, l.Addr().String(), cfg)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // the kernel repeats what is lost after seconds
	defer stop()
	silent, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range flood {
		all.Go(func() {
			_, err := dial(silent, p[0].Addr())
			if err == nil {
				t.Error("it got an answer")
			}
		})
	}
	for range flood - places {
		select {
		case <-told:
		case <-ctx.Done():
			require.NoError(t, ctx.Err())
		}
	}
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Close()
		}
		accepted <- err
	}()
	c, err := dial(ctx, p[1].Addr())
	require.NoError(t, err)
	require.NoError(t, <-accepted)
	require.NoError(t, c.Close())
}
