package session

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// rest is where a target is that wants a context and has none.
type rest uint8

const (
	nowhere   rest = iota
	inLine         // waits for a context
	postponed      // comes again at a time: it was busy, or had no receive
	probed         // is asked without a context whether it is there
)

// Peer is a target as an initiator's machine knows it.
type Peer struct {
	Number uint32
	Owner  any // the driver's

	wanted  bool // a session is asked for, whether there are requests or not
	asking  bool // the service is asked where the target is
	alive   bool // it has replied to something since it left a connect without a reply
	service bool // there is a service that can be asked
	rest    rest
	class   uint8 // of its backlog, in line
	timed   int32 // 1 + its place among those with a timer

	at         wire.ControlAddress // of its control queue, where that was last seen
	key        uint64
	generation uint64 // that the address asks for; 0: whichever
	epoch      uint64 // of the target that was met last
	ctx        *Context
	kept       Session
	pending    int32 // requests not yet posted

	line       *line
	age        neighbours    // in line
	same       neighbours    // in its class
	since      time.Duration // when it began to wait
	timer      time.Duration
	firstTry   time.Duration // of the connects and probes without a reply; 0: none
	probePause time.Duration
	notReady   time.Duration // pause after a request that found no receive

	Stats PeerStats
}

// PeerStats count what was done for one target.
type PeerStats struct {
	Attaches uint64
	Resumes  uint64
	Failures uint64
	Waits    uint64
	Waited   time.Duration
}

// PeerAddress is what the machine must know of a target.
type PeerAddress struct {
	At         wire.ControlAddress
	Generation uint64
	Service    bool
	Key        uint64
}

// AddPeer makes a target known.
func (c *Initiator) AddPeer(a PeerAddress) *Peer {
	p := &Peer{Number: c.peerNumber(), at: a.At, generation: a.Generation, epoch: a.Generation, service: a.Service, key: a.Key}
	c.peers[p.Number] = p
	return p
}

// Knows reports whether a peer is one of this initiator's, and not removed.
func (c *Initiator) Knows(p *Peer) bool {
	return p != nil && int(p.Number) < len(c.peers) && c.peers[p.Number] == p
}

// Pending returns how many requests wait for the target.
func (p *Peer) Pending() int { return int(p.pending) }

// Context returns the context that serves the target, or is about to.
func (p *Peer) Context() *Context { return p.ctx }

// Waiting reports whether the target waits for a context.
func (p *Peer) Waiting() bool { return p.rest != nowhere }

// Remove parts with a target that has no requests, or returns false.
func (c *Initiator) Remove(p *Peer, now time.Duration) bool {
	if !c.dismiss(p, false, now) {
		return false
	}
	c.peers[p.Number] = nil
	c.spare = append(c.spare, p.Number)
	c.gone[p.Number] = p.address()
	return true
}

// Dismiss leaves a target, or returns false if there is something under way.
func (c *Initiator) Dismiss(p *Peer, now time.Duration) bool { return c.dismiss(p, c.Keep, now) }

func (c *Initiator) dismiss(p *Peer, keep bool, now time.Duration) bool {
	if p.pending > 0 || p.wanted {
		return false
	}
	defer c.dispatch(now)
	if x := p.ctx; x != nil {
		if x.state != attached || x.outstanding > 0 {
			return false
		}
		if !keep {
			c.detach(x, now)
			return true
		}
		if c.vacate(x, now); x.state == free {
			c.reset(x, now) // ahead: the next session finds it ready
		}
		return true
	}
	if !keep {
		c.giveBack(p, now)
	}
	return true
}

// giveBack closes the session that is kept for a target.
func (c *Initiator) giveBack(p *Peer, now time.Duration) {
	if p.kept.ID != 0 {
		c.disconnect(p, &p.kept, wire.NoReason, now)
	}
	p.kept = Session{}
}

// peerNumber returns a number for a new target, and has a place for it: one that was
// given up, unless its last owner still has to be disconnected.
func (c *Initiator) peerNumber() uint32 {
	for i, n := range c.spare {
		if !slices.ContainsFunc(c.disconnects, func(d disconnect) bool { return d.m.Peer == n }) {
			c.spare = slices.Delete(c.spare, i, i+1)
			return n
		}
	}
	c.peers = append(c.peers, nil)
	return uint32(len(c.peers) - 1)
}
