package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// One host that greets by many queue pairs leaves room for others, and may have other peers
// when its old ones have been silent for long. With a key it is trusted.
func TestOneHostDoesNotFillThePeers(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 2}} {
		cfg := simple(2)
		cfg.MaxPeers, cfg.Key = 1000, key
		w := newWorld(t, 1, 2, cfg)
		n := w.nodes[0]
		greet := func(i int) {
			w.now += time.Millisecond
			n.e.Advance(n.raw())
			from := wire.Addr{GID: addrOf(500).GID, QPN: uint32(i), QKey: 77}
			g := wire.Greeting{From: from, Epoch: 5, Token: 6, Stamp: n.e.Wall()}
			g.Cookie = n.e.Cookie(&g)
			n.e.Receive(source(from), hello(from, addrOf(0), g, key))
			answers(n)
		}
		for i := range cfg.MaxPeers {
			greet(i)
		}
		if key != nil {
			require.Equal(t, cfg.MaxPeers, n.e.Known())
			continue
		}
		require.Equal(t, n.e.HostShare(), n.e.Known())
		for from, node := range w.nodes {
			l := w.model.post(node, 1-from, Reliable, 64)
			node.pump()
			w.run(w.now + 100*time.Millisecond)
			require.Equal(t, Delivered, l.status)
		}

		n.e.Now += 2 * n.e.cfg.EvictAge
		forgotten := n.e.Stats.Forgotten
		greet(cfg.MaxPeers)
		require.Equal(t, forgotten+1, n.e.Stats.Forgotten)
		require.NotNil(t, n.e.Lookup(wire.Addr{GID: addrOf(500).GID, QPN: uint32(cfg.MaxPeers), QKey: 77}))
		require.Equal(t, n.e.HostShare()+len(w.nodes)-1, n.e.Known())
	}
}
