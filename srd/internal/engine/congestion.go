package engine

import (
	"math/bits"
	"time"
)

const (
	smallestWindow = 4 << 8
	largestWindow  = maxUnderWay << 8
	// maxUnderWay is the largest number of packets that may be under way to a peer. There are
	// more packet numbers: packets behind one that is lost twice go on.
	maxUnderWay = 256
)

// sample records a round trip time of path i.
func (e *Engine) sample(p *peer, i uint8, rtt time.Duration) {
	n := e.network(p)
	x := &n.paths[i]
	rtt = max(rtt, time.Microsecond)
	if x.SRTT == 0 {
		x.least = rtt
	}
	x.Sample(rtt)
	x.least = min(x.least, rtt)
	if x.lately == 0 || rtt < x.lately {
		x.lately = rtt
	}
	if n.middle == 0 || e.Now >= n.judgeAt {
		n.middle = e.roundTrip(n)
		e.judge(p, n)
		n.judgeAt = e.Now + n.middle
	}
}

// roundTrip returns the median round trip time of the paths that have been used.
func (e *Engine) roundTrip(n *network) time.Duration {
	var trips [MaxPaths]time.Duration
	used := trips[:0]
	for i := range n.paths[:e.cfg.Paths] {
		if t := n.paths[i].SRTT; t > 0 {
			used = append(used, t)
		}
	}
	return median(used)
}

// How much of a receiver's memory for messages is in use, of 255: with more than
// shortOfMemory the window does not grow, with more than outOfMemory it shrinks. With NoMemory
// there was none for a packet, which has to come again.
const (
	shortOfMemory = 160
	outOfMemory   = 224
	NoMemory      = 255
)

// judge sets the window once a round trip. Packets that are lost here and there say
// nothing of congestion, nor does one path that is slow: if most are, or most time
// out, or the receiver's memory runs out, it is too large.
func (e *Engine) judge(p *peer, n *network) {
	e.age(n)
	seen, slow, failing := 0, 0, 0
	for set := n.failing; set != 0; set &= set - 1 {
		if !n.paths[bits.TrailingZeros16(set)].retired {
			failing++
		}
	}
	for i := range n.paths[:e.cfg.Paths] {
		x := &n.paths[i]
		if x.SRTT == 0 || x.retired {
			continue
		}
		seen++
		if x.lately > 0 { // a queue that stands delays all packets, a host that is busy some
			x.slow = x.lately > x.least+x.least>>1+e.target
			x.lately = 0
		}
		if x.slow {
			slow++
		}
		x.least += max(0, x.SRTT-x.least) >> 6 // routes change
	}
	n.failing = 0
	switch {
	case 2*failing > int(n.live):
		n.window, n.opening = n.window/2, false
	case 2*slow > seen || n.pressure > outOfMemory:
		n.window, n.opening = n.window-n.window/5, false
	case p.flying<<8 < n.window/2 || n.pressure > shortOfMemory:
		// It is not used, or no more is wanted.
	case n.opening:
		n.window *= 2
	default:
		n.window += max(1<<8, n.window/32)
	}
	n.window = min(max(n.window, smallestWindow), largestWindow)
}

// room returns how many packets may be sent to a peer.
func (e *Engine) room(p *peer) int {
	n := e.network(p)
	w := min(int(n.window>>8), int(p.grant))
	if w == 0 && p.flying == 0 && e.mayAsk(n) {
		return 1
	}
	if n.doublings() > 0 { // one at a time, until a response comes
		w = 1
	}
	return w - int(p.flying)
}
