package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// calmPair is an engine whose four paths have lost nothing for a while, its peer and its network.
func calmPair(t *testing.T) (*Engine, *peer, *network) {
	e := settledPair(t, func(c *Config) { c.Paths = 4 }).nodes[0].e
	p := e.peers[0]
	n := e.network(p)
	n.middle = time.Millisecond
	for i := range n.paths[:4] {
		n.paths[i] = path{srtt: time.Millisecond, need: 8}
	}
	n.n, n.steady, n.limit = 0, 0, lossSlack
	for i := range calmAfter {
		e.arrived(p, uint8(i%4))
	}
	p.flying = 8
	return e, p, n
}

// choices are how many packets in a row took each path, of so many that are sent at once.
func choices(e *Engine, p *peer, n int) (paths []uint8, lengths []int) {
	e.now++
	e.network(p).stay = 0
	for range n {
		c := e.choose(p, -1)
		if k := len(paths); k > 0 && paths[k-1] == c {
			lengths[k-1]++
			continue
		}
		paths, lengths = append(paths, c), append(lengths, 1)
	}
	return paths, lengths
}

// While nothing is lost a burst is as long as what is under way, up to 32 packets, and all paths
// have the same share.
func TestCalmBursts(t *testing.T) {
	e, p, n := calmPair(t)
	_, lengths := choices(e, p, 32)
	require.Equal(t, []int{8, 8, 8, 8}, lengths)
	require.Zero(t, n.n, "what arrived before is not waiting for its turn when something is lost")
	p.flying = 200
	paths, lengths := choices(e, p, 128)
	require.Equal(t, []int{32, 32, 32, 32}, lengths)
	require.ElementsMatch(t, []uint8{0, 1, 2, 3}, paths)
	p.flying = 0
	_, lengths = choices(e, p, 8)
	require.Len(t, lengths, 8, "the first packets")
}

// At the first sign that something is lost, or that a path is worse than the others, bursts are
// as short as ever, until calmAfter packets have arrived.
func TestTroubleEndsLongBursts(t *testing.T) {
	for name, trouble := range map[string]func(e *Engine, p *peer, n *network){
		"a packet is lost": func(e *Engine, p *peer, n *network) { e.missed(p, 1) },
		"a timer ends": func(e *Engine, p *peer, n *network) {
			e.timedOut(p, 1)
			n.paths[1].works()
		},
		"a response is lost": func(e *Engine, p *peer, n *network) {
			e.now += time.Second
			n.paths[1].owed, n.paths[1].respondedAt = 1, e.now-time.Second
			n.paths[2].owed, n.paths[2].respondedAt = 1, e.now
			e.named(p, 1<<2)
			n.paths[1].works()
		},
		"a path is suspect": func(e *Engine, p *peer, n *network) { n.paths[1].suspect = true },
		"a path is retired": func(e *Engine, p *peer, n *network) { n.paths[1].retired = true },
		"a path loses":      func(e *Engine, p *peer, n *network) { n.paths[1].samples, n.paths[1].missed = 20, 2 },
		"a path has a queue": func(e *Engine, p *peer, n *network) {
			n.paths[1].slow, e.each = true, n.paths[1].srtt/64
		},
		"a path has long ways": func(e *Engine, p *peer, n *network) { n.paths[1].srtt = 2*n.middle + 1 },
		"few packets arrived": func(e *Engine, p *peer, n *network) {
			n.troubled()
			for range calmAfter - 1 {
				e.arrived(p, 0)
			}
		},
	} {
		e, p, n := calmPair(t)
		require.True(t, e.calm(p, n), name)
		trouble(e, p, n)
		p.flying = 16
		require.False(t, e.calm(p, n), name)
		_, lengths := choices(e, p, 32)
		require.Greater(t, len(lengths), 8, "%s: an eighth of 16 is two: %v", name, lengths)
	}
	e, p, n := calmPair(t)
	n.troubled()
	for range calmAfter {
		e.arrived(p, 0)
	}
	require.True(t, e.calm(p, n), "it is over")
	n.paths[1].slow, p.flying, e.each = true, 64, n.paths[1].srtt/64
	require.True(t, e.calm(p, n), "the queue is this host's own")
	for range 4 {
		next := (n.rotation + 1) % 4
		n.stay = 0
		require.NotEqual(t, next, e.choose(p, int(next)), "what is sent again goes by another path")
	}
}
