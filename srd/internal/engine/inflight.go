package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// States of a packet that has a number.
const (
	flying  = iota // in the list of its sub-flow
	lost           // in the list of those that are to be sent again
	settled        // it arrived, or was refused
)

// packet is a packet that has a number.
type packet struct {
	sent       time.Duration // last
	message    uint32
	next, prev uint32 // in its list
	path       uint8
	state      uint8
	tries      uint8
	cancel     bool // send that it never comes instead
	late       bool // a timer took it for lost
	long       bool // it has more than smallFragment bytes, and is counted
}

// list is one of packets, by their places in the ring.
type list struct{ head, tail uint32 }

func (l *list) empty() bool { return l.head == none }

// subFlow has the packets of a flow that went by one path, in the order of sending, with a
// timer of its own.
type subFlow struct {
	list
	armed   time.Duration // when the timer began: a packet was sent, or a response came
	newest  time.Duration // when the packet was sent that is known to have arrived
	probed  bool          // the timer ended once, and one packet was sent again
	backoff uint8
}

// inflight are the packets of a flow between the first that is not settled and the
// next number. Packets are in a ring, by number.
type inflight struct {
	ring []packet
	subs [MaxPaths]subFlow
	lost list
	more time.Duration // when a packet was sent that promised another one behind it
	told time.Duration // when the last sent of the acknowledged packets was sent, by any path

	hold time.Duration // until when no message begins again, for lack of memory there, or 0
}

const shortestRing = 16

func (l *inflight) at(seq uint32) *packet { return &l.ring[seq&uint32(len(l.ring)-1)] }

// nextLost returns the place of the packet that is sent again next, or none.
func (e *Engine) nextLost(f *txFlow) uint32 {
	l := f.live
	switch {
	case l == nil:
		return none
	case l.hold == 0 || l.lost.empty():
		return l.lost.head
	}
	return e.nextWithMemory(l)
}

// nextWithMemory returns the place of the lost packet that is sent again next while the receiver
// lacks memory: it is of a message that has some there, or that is given up.
func (e *Engine) nextWithMemory(l *inflight) uint32 {
	for i := l.lost.head; i != none; i = l.ring[i].next {
		if k := &l.ring[i]; k.cancel || e.messages[k.message].settled > 0 {
			return i
		}
	}
	return none
}

// has reports whether a number is under way.
func (l *inflight) has(f *txFlow, seq uint32) bool { return seq-f.una < f.nxt-f.una }

// append puts a packet at the end of a list.
func (l *inflight) append(q *list, seq uint32) {
	l.link(q, seq, q.tail, none)
}

// insert puts a packet into a list behind the packets that were sent before it.
func (l *inflight) insert(q *list, seq uint32) {
	sent := l.at(seq).sent
	prev, next := q.tail, none
	for prev != none && l.ring[prev].sent > sent {
		prev, next = l.ring[prev].prev, prev
	}
	l.link(q, seq, prev, next)
}

// link puts a packet between two of a list that follow each other.
func (l *inflight) link(q *list, seq, prev, next uint32) {
	i := seq & uint32(len(l.ring)-1)
	k := &l.ring[i]
	k.prev, k.next = prev, next
	if prev == none {
		q.head = i
	} else {
		l.ring[prev].next = i
	}
	if next == none {
		q.tail = i
	} else {
		l.ring[next].prev = i
	}
}

func (l *inflight) remove(q *list, seq uint32) {
	k := l.at(seq)
	if k.prev == none {
		q.head = k.next
	} else {
		l.ring[k.prev].next = k.next
	}
	if k.next == none {
		q.tail = k.prev
	} else {
		l.ring[k.next].prev = k.prev
	}
}

// number returns the number of the packet at a place of the ring.
func (l *inflight) number(f *txFlow, place uint32) uint32 {
	return f.una + (place-f.una)&uint32(len(l.ring)-1)
}

func newInflight() *inflight {
	l := &inflight{ring: make([]packet, shortestRing)}
	l.clear(MaxPaths)
	return l
}

// clear empties the lists of so many paths. All others have never been used.
func (l *inflight) clear(paths int) {
	l.lost, l.more, l.told, l.hold = list{none, none}, 0, 0, 0
	for i := range l.subs[:paths] {
		l.subs[i] = subFlow{list: list{none, none}}
	}
}

// acquire gives a flow its ring of packets, with room for one more.
func (e *Engine) acquire(f *txFlow) {
	l := f.live
	if l == nil {
		if n := len(e.flows); n > 0 {
			l = e.flows[n-1]
			e.flows = e.flows[:n-1]
		} else {
			l = newInflight()
		}
		l.clear(e.cfg.Paths)
		f.live = l
	}
	if n := uint32(len(l.ring)); f.nxt-f.una == n && n < wire.Window {
		l.grow(f)
	}
}

// grow doubles the ring. Places change: lists are made again, in their order.
func (l *inflight) grow(f *txFlow) {
	old := *l
	l.ring = make([]packet, 2*len(old.ring))
	for s := f.una; s != f.nxt; s++ {
		*l.at(s) = *old.at(s)
	}
	again := func(q, was *list) {
		*q = list{none, none}
		for i := was.head; i != none; i = old.ring[i].next {
			l.append(q, old.number(f, i))
		}
	}
	again(&l.lost, &old.lost)
	for i := range l.subs {
		again(&l.subs[i].list, &old.subs[i].list)
	}
}

// releaseFlow keeps the ring of a flow for another one, unless enough are kept.
func (e *Engine) releaseFlow(f *txFlow) {
	if len(e.flows) < spareNetworks {
		e.flows = append(e.flows, f.live)
	}
	f.live = nil
}

// flies records that a packet was sent by a path.
func (e *Engine) flies(f *txFlow, seq uint32, path uint8) {
	l := f.live
	k := l.at(seq)
	s := &l.subs[path]
	if s.empty() {
		s.armed, s.probed, s.backoff = e.Now, false, 0
	}
	k.sent, k.path, k.state, k.late = e.Now, path, flying, false
	k.tries = min(k.tries+1, 255-1)
	l.append(&s.list, seq)
	f.p.flying++
	e.network(f.p).paths[path].flying++
	e.Wake(&f.p.Peer, s.armed+e.timeout(f, s, path))
}

// resumes records that a packet that was in no list is under way as it was before.
func (e *Engine) resumes(f *txFlow, seq uint32) {
	l := f.live
	k := l.at(seq)
	s := &l.subs[k.path]
	l.insert(&s.list, seq)
	k.state, k.late = flying, false
	s.armed = e.Now
	f.p.flying++
	e.network(f.p).paths[k.path].flying++
	e.Wake(&f.p.Peer, s.armed+e.timeout(f, s, k.path))
}

// arrived records that a packet, sent by a path at that time, has arrived: its timer begins anew.
func (l *inflight) arrived(path uint8, sent, now time.Duration) {
	s := &l.subs[path]
	s.newest, l.told = max(s.newest, sent), max(l.told, sent)
	s.armed, s.probed, s.backoff = now, false, 0
}

// landed records that a packet is not under way any more.
func (e *Engine) landed(p *peer, path uint8) {
	p.flying--
	if n := p.net; n != nil && n.paths[path].flying > 0 {
		n.paths[path].flying--
	}
}

// lose takes a packet for lost: it is sent again, by another path, or reported.
func (e *Engine) lose(f *txFlow, seq uint32) {
	l := f.live
	k := l.at(seq)
	l.remove(&l.subs[k.path].list, seq)
	l.append(&l.lost, seq)
	k.state = lost
	e.network(f.p).paths[k.path].strays()
	e.landed(f.p, k.path)
	e.Enqueue(&f.p.Peer)
	if f.service == NoRetransmit { // the receiver refuses it from now on, unless it arrived
		k.cancel = true
	}
}

// resend has everything under way sent again: no response to it counts.
func (e *Engine) resend(p *peer) {
	for _, f := range &p.tx {
		if f == nil || f.live == nil {
			continue
		}
		for i := f.live.lost.head; i != none; i = f.live.ring[i].next {
			f.live.ring[i].late = false
		}
		for i := range f.live.subs {
			for s := &f.live.subs[i]; !s.empty(); {
				e.lose(f, f.live.number(f, s.head))
			}
		}
	}
}

// rearm begins all timers anew.
func (e *Engine) rearm(p *peer) {
	for _, f := range &p.tx {
		if f == nil || f.live == nil {
			continue
		}
		for i := range f.live.subs {
			f.live.subs[i].armed = e.Now
		}
	}
	e.Wake(&p.Peer, e.Now+e.cfg.MinTimeout)
}
