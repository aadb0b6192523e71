package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// A peer to which many send grants a sender nothing until it is the sender's turn. Each packet
// says whether others wait behind it. While the peer has not been told so, one packet goes without
// a grant; then the sender waits. It has nothing under way, so no timer ends, and no path is
// probed. One packet goes again when the grant is late: the grant may be lost, or the peer may have
// restarted, which only the response to a packet shows.

const (
	askShare    = 16 // of PeerTimeout, that a sender that was told to wait does so before it asks again
	askTimers   = 16 // MinTimeouts, before it asks again if it was told nothing
	maxAskShare = 4  // of PeerTimeout, that it waits at most: both are doubled each time
)

// asking is what a sender has told a peer about its waiting packets.
type asking struct {
	told  bool          // the last packet there said that others wait
	tries uint8         // packets in a row that went without a grant
	at    time.Duration // when the next one goes without a grant
}

// mayAsk reports whether a packet may go without a grant, when none is under way.
func (e *Engine) mayAsk(n *network) bool { return !n.asking.told || e.Now >= n.asking.at }

// tells records that a packet was sent that says whether others wait behind it.
func (e *Engine) tells(p *peer, waits bool) {
	a := &p.net.asking
	a.told = waits
	if waits && p.grant == 0 {
		e.askIn(p, askTimers*e.cfg.MinTimeout<<a.tries)
		a.tries = min(a.tries+1, 8)
	}
}

// askIn sets when a sender asks again. That varies by half: of many that greeted at once, all would
// ask at once.
func (e *Engine) askIn(p *peer, d time.Duration) {
	a := &p.net.asking
	d = max(1, min(d, e.cfg.PeerTimeout/maxAskShare))
	a.at = e.Now + d/2 + time.Duration(e.Rng.Int64N(int64(d)))
	e.Wake(&p.Peer, a.at)
}

// ask queues a packet that goes without a grant if it is time, and else returns the time when
// one may go, or never.
func (e *Engine) ask(p *peer) time.Duration {
	switch {
	case !p.idles() || !e.waits(p):
		return never
	case e.mayAsk(p.net):
		e.Enqueue(&p.Peer)
		return never
	}
	return p.net.asking.at
}

// idles reports whether a peer has granted nothing, and nothing is under way to it.
func (p *peer) idles() bool { return p.grant == 0 && p.flying == 0 }

// onGrant takes the grant of a peer that knows by a greeting that something waits.
func (e *Engine) onGrant(p *peer, c *wire.Credit) {
	e.network(p).asking.told = e.waits(p)
	e.granted(p, c.Grant)
	e.Enqueue(&p.Peer)
}

// granted records a grant of n packets.
func (e *Engine) granted(p *peer, n uint16) {
	p.grant = n
	a := &p.net.asking
	switch {
	case n > 0:
		a.tries = 0
	case a.told:
		e.askIn(p, e.cfg.PeerTimeout/askShare<<max(a.tries, 1)>>1)
	}
}
