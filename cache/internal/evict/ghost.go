package evict

// ghost remembers fingerprints of what left the small queue, as many as the main queue
// has items.
type ghost struct {
	seen map[uint64]uint64 // fingerprint to the turn in which it was added
	fifo []uint64
	head int
	turn uint64 // of the next one
}

// leastGhosts are remembered when the main queue is nearly empty.
const leastGhosts = 64

func (g *ghost) add(fingerprint uint64, limit int) {
	if g.seen == nil {
		g.seen = make(map[uint64]uint64)
	}
	g.seen[fingerprint] = g.turn
	g.fifo = append(g.fifo, fingerprint)
	g.turn++
	for len(g.fifo)-g.head > max(limit, leastGhosts) {
		f := g.fifo[g.head]
		// A fingerprint that was taken, or added again, has a later entry or none.
		if g.seen[f] == g.turn-uint64(len(g.fifo)-g.head) {
			delete(g.seen, f)
		}
		g.head++
	}
	if g.head > len(g.fifo)/2 && g.head > leastGhosts {
		g.fifo = g.fifo[:copy(g.fifo, g.fifo[g.head:])]
		g.head = 0
	}
}

// take forgets a fingerprint, and tells whether it was remembered.
func (g *ghost) take(fingerprint uint64) bool {
	_, ok := g.seen[fingerprint]
	delete(g.seen, fingerprint)
	return ok
}
