package engine

import "github.com/goverbs/goverbs/srd/internal/wire"

// Packets are as long as both ends' links carry, as they tell each other in greetings. A
// link in between may carry less, and lose the longer ones without a word. That shows when
// long packets are lost again and again while others are acknowledged.

// smallFragment is how many bytes of a message go in a packet for which nearly no link is
// too short.
const smallFragment = wire.SmallMTU - wire.Overhead

// limits returns the limits that greetings carry.
func (e *Engine) limits() wire.Limits {
	return wire.LimitsOf(e.cfg.MTU, e.cfg.MaxMessage, e.cfg.EvictAge, e.cfg.Boot()-e.intact)
}

// limit records a peer's limits, and cuts messages to it accordingly.
func (e *Engine) limit(p *peer, l wire.Limits) {
	p.limits, p.large, p.small = l, e.now, 0
	e.cut(p, min(e.fragment, int(l.MTU)-wire.Overhead))
	e.long(p, int(p.fragment), func(k *packet) { e.abort(k.message, PathMTU) }) // it went with a greeting
}

// cut has packets to a peer carry n bytes of a message. A message that has begun keeps its
// packets.
func (e *Engine) cut(p *peer, n int) {
	p.fragment = uint16(n)
	for _, f := range &p.tx {
		if f == nil {
			continue
		}
		for i := f.head; i != none; {
			m := &e.messages[i]
			next := m.next
			switch {
			case m.sent > 0:
			case m.total > p.limits.Message:
				e.abort(i, TooLarge)
			default:
				m.fragment, m.count = p.fragment, wire.Count(m.total, p.fragment)
			}
			i = next
		}
	}
}

// fits reports whether the first message of each flow to a peer is one packet that any link
// carries.
func (e *Engine) fits(p *peer) bool {
	for _, f := range &p.tx {
		if f != nil && f.head != none && e.messages[f.head].count > 1 {
			return false
		}
	}
	return true
}

// length returns how many bytes of a message the packet with a number has.
func (m *message) length(seq uint32) int {
	return int(min(m.total-(seq-m.first)*uint32(m.fragment), uint32(m.fragment)))
}

// manyTries is how often a long packet is sent before the path is suspected.
const manyTries = 3

// suspectMTU gives up what is under way in long packets, if for half of PeerTimeout none of them
// arrived by any path, and for a good part of that others did. Later messages go in short ones.
// Losses at a peer without memory for messages do not count; it reports them in Pressure.
func (e *Engine) suspectMTU(p *peer) {
	if e.network(p).pressure > shortOfMemory {
		p.large = e.now
	}
	if p.longs == 0 || e.now-p.large < e.cfg.PeerTimeout/2 || p.small == 0 || e.now-p.small < e.cfg.PeerTimeout/4 ||
		e.now-e.network(p).answered > e.cfg.PeerTimeout/8 {
		return
	}
	tried := false
	e.long(p, smallFragment, func(k *packet) { tried = tried || k.tries >= manyTries })
	if !tried {
		return
	}
	p.large, p.small = e.now, 0
	e.long(p, smallFragment, func(k *packet) { e.abort(k.message, PathMTU) })
	e.cut(p, min(int(p.fragment), smallFragment))
}

// long calls f with each packet of more than n bytes of a message that is under way to a
// peer.
func (e *Engine) long(p *peer, n int, f func(*packet)) {
	for _, t := range &p.tx {
		if t == nil || t.live == nil {
			continue
		}
		for s := t.una; s != t.nxt; s++ {
			if k := t.live.at(s); k.state != settled && !k.cancel && e.messages[k.message].length(s) > n {
				f(k)
			}
		}
	}
}
