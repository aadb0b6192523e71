package engine

import "time"

const (
	// calmAfter is how many packets arrive in a row, while none is taken for lost and no
	// timer ends, before the paths are calm.
	calmAfter = 128
	// calmBurst is how many packets in a row take one path at most while all are.
	calmBurst = 32
)

// calm tells whether no path is any worse than the others: nothing was lost for some time, and none
// takes much longer, or is out of use; and whether none has a queue, other than that of this host's own
// device. Then it hardly matters which one a packet takes, and each that is used costs a doorbell, so
// that as much goes by one as was under way before, and all have their turn.
func (e *Engine) calm(p *peer, n *network) bool {
	if n.steady < calmAfter {
		return false
	}
	own := 2 * time.Duration(p.flying) * e.each
	for i := range n.paths[:e.cfg.Paths] {
		if x := &n.paths[i]; !x.sound() || x.srtt > 2*n.middle || x.slow && x.srtt > own || n.loses(uint8(i)) {
			return false
		}
	}
	return true
}

// troubled notes that something was taken for lost.
func (n *network) troubled() { n.steady = 0 }

// burst answers the path of the packets that come next, and how many may take it if they are sent at once.
func (e *Engine) burst(p *peer, n *network, avoid int) (path uint8, length int) {
	if e.calm(p, n) {
		if c, works := e.inTurn(n, avoid); works {
			n.n = 0 // what arrived meanwhile says nothing of the time after
			return c, min(calmBurst, max(1, int(p.flying)))
		}
	}
	length = int(min(longestBurst, max(1, p.flying/burstShare)))
	return e.pick(n, avoid), length
}
