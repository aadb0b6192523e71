package offload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// One host that greets by many queue pairs leaves room for others, and may have other peers
// when its old ones have been silent for long.
func TestOneHostDoesNotFillThePeers(t *testing.T) {
	cfg := simple()
	cfg.MaxPeers = 1000
	w := newWorld(t, 1, 1, cfg)
	n := w.nodes[0]
	greet := func(i int) {
		w.Now += time.Millisecond
		n.m.Advance(n.raw())
		from := wire.Addr{GID: addrOf(500).GID, QPN: uint32(i), QKey: 77}
		hello := wire.Packet{Type: wire.Hello, Greeting: wire.Greeting{From: from, Epoch: 5, Token: 6, Stamp: 7, Limits: anyLimits}}
		hello.Greeting.Cookie = n.m.Cookie(&hello.Greeting)
		var b [wire.MaxHeaders]byte
		n.m.Receive(from.QPN, b[:hello.Encode(b[:])])
	}
	for i := range cfg.MaxPeers {
		greet(i)
	}
	require.Equal(t, n.m.HostShare(), n.m.Known())
	require.Len(t, n.m.Senders, n.m.Known(), "a peer that greets is about to send")
	require.Zero(t, n.m.Stats.WrongToken)
	n.m.Now += 2 * n.m.cfg.EvictAge
	forgotten := n.m.Stats.Forgotten
	greet(cfg.MaxPeers)
	require.Equal(t, forgotten+1, n.m.Stats.Forgotten)
	require.Equal(t, n.m.HostShare(), n.m.Known())
}
