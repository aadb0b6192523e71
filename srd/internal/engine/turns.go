package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// The budget, which is the packets that all peers together may have under way to this endpoint, is
// divided among those that send. While there are few each has a share. When a share would be a few
// packets only, they take turns: a turn is a grant of some packets to one that has more to send;
// the others are granted nothing, and wait. So what is under way fits the queue in front of the
// receiver, however many want to send (as the tokens of pHost, and the pulls of NDP and EQDS).

const (
	// turnShare is which part of the budget a turn is, and maxTurn how many packets at most.
	turnShare = 32
	maxTurn   = 16
	// turnTimers is how long a turn lasts at most, in MinTimeouts, until it was measured how long
	// the first packet of a turn takes to come, and then turnTimes times that. The least time of
	// the last tookShare of PeerTimeout counts: a peer that delays its first packet gets no longer
	// turns for it, in which others would have none.
	turnTimers = 8
	turnTimes  = 3
	tookShare  = 16
	// idleTurns is how many turns in a row a peer gets without using them.
	idleTurns = 3
)

// queue is a list of peers by their networks' turn.next.
type queue struct{ head, tail uint32 }

// senders are those that wait for a turn.
type senders struct {
	waiting queue         // valid if length > 0
	length  int           // of waiting
	granted int           // packets of turns that have not come
	took    time.Duration // from a grant until its first packet
	least   time.Duration // the same, since tookAt, or 0
	tookAt  time.Duration
}

// turn is the state of a peer as one of many senders.
type turn struct {
	since   time.Duration // when it was granted something of which nothing has come, or 0
	expires time.Duration
	next    uint32 // in the queue
	said    uint32 // the stamp of the packet that more is from
	left    uint16 // packets of its turn that have not come
	size    uint16 // of its last turn
	most    uint16 // of the next one, if it did not use the last ones, or 0
	rest    uint16 // packets of its message behind that one
	idle    uint8  // turns in a row of which it used nothing
	more    bool   // others waited behind the packet that it sent last
	wants   bool   // it has more to send
	waits   bool   // it is in the queue
	short   bool   // it did not use its last turn
	ends    bool   // its last turn was in front of others, to end a message
	owed    bool   // it is to be told of its turn, and there is no flow of it to respond to
	first   bool   // it had nothing left of a turn when it was granted this one
}

// leave removes a peer from the senders.
func (e *Engine) leave(p *peer) {
	e.endTurn(p)
	e.Leave(&p.Peer)
}

// turnSize returns how many packets a turn has at least.
func (e *Engine) turnSize() int { return min(max(e.cfg.Budget/turnShare, 1), maxTurn) }

// crowded reports whether peers take turns: a share would be less than one turn.
func (e *Engine) crowded() bool { return len(e.Senders)*e.turnSize() > e.cfg.Budget }

// share returns how many packets a peer may have under way towards this endpoint.
func (e *Engine) share(p *peer) uint16 {
	for range 2 {
		if q := e.Stopped(); q != nil && !e.peers[q.Slot].takesTurns() {
			e.Leave(q)
		}
	}
	if !e.crowded() {
		return uint16(min(e.cfg.Budget/max(1, len(e.Senders)), maxUnderWay))
	}
	e.asksTurn(p) // others may have come since it sent
	e.giveTurns()
	return e.network(p).turn.left
}

// takesTurns reports whether a peer has a turn, or waits for one.
func (p *peer) takesTurns() bool { return p.net != nil && (p.net.turn.waits || p.net.turn.left > 0) }

// enough returns after how many packets of a peer a response goes at once.
func (e *Engine) enough(p *peer) uint16 {
	if e.crowded() {
		return uint16(e.turnSize())
	}
	return min(32, max(1, e.share(p)/4))
}

// sends records a packet of a flow, and whether its sender says that others wait.
func (e *Engine) sends(p *peer, f *rxFlow, k *wire.Packet) {
	s, t := &e.senders, &e.network(p).turn
	if t.since > 0 {
		if t.first {
			e.turnTook(e.Now - t.since)
		}
		t.since = 0
	}
	t.idle = 0
	if t.left > 0 {
		t.left--
		s.granted--
		if t.left == 0 {
			t.most, t.short = 2*t.most, false
		}
	}
	// Paths reorder: what was sent later counts, and of what was sent at once that there is no more.
	if newer := int32(k.Stamp - t.said); newer > 0 || newer == 0 && !k.Waits || t.said == 0 {
		t.more, t.said = k.Waits, k.Stamp
		t.rest = uint16(min(wire.Count(k.Part.Total, k.Part.Fragment)-1-k.Part.Index, 1<<16-1))
	}
	// What is missing before others was lost, perhaps, and will come again.
	if t.wants = t.more || f.seen.n > 0; !t.wants {
		s.granted -= int(t.left)
		t.left = 0
	}
	e.asksTurn(p)
	e.giveTurns()
}

// turnTook records how long the first packet of a turn took to come.
func (e *Engine) turnTook(d time.Duration) {
	s := &e.senders
	d = max(d, 1)
	if s.least == 0 || d < s.least {
		s.least = d
	}
	if s.took = min(s.took, d); e.Now-s.tookAt >= e.cfg.PeerTimeout/tookShare {
		s.took, s.least, s.tookAt = s.least, 0, e.Now
	}
}

// greets records a greeting: its sender has something to send.
func (e *Engine) greets(p *peer) {
	if e.crowded() {
		e.network(p).turn.wants = true
		e.asksTurn(p)
		e.giveTurns()
	}
}

// asksTurn queues a peer for a turn if it has more to send and at most half of its last turn is
// left. The peer goes in front of others if a turn ends the message that its last one began:
// otherwise all messages would end late.
func (e *Engine) asksTurn(p *peer) {
	t := &e.network(p).turn
	if !t.wants || t.waits || t.left > t.size/2 || !e.crowded() {
		return
	}
	t.ends = !t.ends && t.size > 0 && t.rest > t.left && int(t.rest) <= e.turnSize()
	e.queueTurn(p, t.ends)
}

// queueTurn puts a peer in front of the queue for turns, or behind it.
func (e *Engine) queueTurn(p *peer, front bool) {
	s, t := &e.senders, &p.net.turn
	t.waits, t.next = true, none
	switch {
	case s.length == 0:
		s.waiting = queue{p.Slot, p.Slot}
	case front:
		t.next, s.waiting.head = s.waiting.head, p.Slot
	default:
		e.peers[s.waiting.tail].net.turn.next = p.Slot
		s.waiting.tail = p.Slot
	}
	s.length++
}

func (e *Engine) dequeueTurn() *peer {
	s := &e.senders
	p := e.peers[s.waiting.head]
	s.waiting.head = p.net.turn.next
	p.net.turn.waits = false
	s.length--
	return p
}

// giveTurns hands out the free part of the budget: turns, or more if few peers wait.
func (e *Engine) giveTurns() {
	s := &e.senders
	for s.length > 0 {
		free := e.cfg.Budget - s.granted
		crowded := e.crowded()
		if crowded && free < e.turnSize() {
			return
		}
		size := min(max(free/s.length, e.turnSize()), maxUnderWay)
		p := e.dequeueTurn()
		t := &p.net.turn
		if t.most >= uint16(size) {
			t.most = 0
		} else if t.most > 0 {
			size = int(t.most)
		}
		if !t.wants {
			continue
		}
		if crowded { // else it has a share
			if t.since == 0 {
				t.since, t.first = e.Now, t.left == 0
			}
			t.left, t.size = t.left+uint16(size), uint16(size)
			s.granted += size
			t.expires = e.Now + min(max(turnTimers*e.cfg.MinTimeout, turnTimes*s.took), e.cfg.PeerTimeout/4)
			e.Wake(&p.Peer, t.expires)
		}
		e.tellShare(p)
	}
}

// tellShare sends a peer its grant, in a response if there is a flow for one.
func (e *Engine) tellShare(p *peer) {
	e.Enqueue(&p.Peer)
	for _, f := range &p.rx {
		if f != nil {
			f.now = true
			return
		}
	}
	p.net.turn.owed = true
}

// grant adds the grant of a peer that has no flow to a packet.
func (e *Engine) grant(p *peer, k *wire.Packet) {
	k.HasCredit, k.Credit = true, wire.Credit{Grant: e.share(p)}
	e.network(p).turn.owed = false
}

// turnOver takes back what a peer did not use of its turn in time, and returns when to look
// again. The grant may have been lost, or the packets: the peer has another turn.
func (e *Engine) turnOver(p *peer) time.Duration {
	t := &p.net.turn
	if t.left > 0 && e.Now >= t.expires {
		e.senders.granted -= int(t.left)
		if t.short {
			t.most = max(1, t.size-min(t.size, t.left))
		}
		t.left, t.short = 0, true
		if t.since > 0 {
			t.idle++
		}
		t.wants = t.wants && t.idle < idleTurns
		e.asksTurn(p)
		e.giveTurns()
	}
	if t.left > 0 {
		return t.expires
	}
	return never
}

// endTurn forgets what a peer wants to send.
func (e *Engine) endTurn(p *peer) {
	if p.net == nil {
		return
	}
	t := &p.net.turn
	e.senders.granted -= int(t.left)
	if t.waits { // rare: the queue is made again without it
		for n := e.senders.length; n > 0; n-- {
			if q := e.dequeueTurn(); q != p {
				e.queueTurn(q, false)
			}
		}
	}
	*t = turn{}
}
