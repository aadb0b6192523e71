package engine

import "github.com/goverbs/goverbs/srd/internal/wire"

// Packets are as long as both ends' links carry, as they tell each other in greetings. A
// link in between may carry less, and lose the longer ones without a word. That shows when
// long packets are lost again and again while others are acknowledged.

// smallFragment is how many bytes of a message go in a packet for which nearly no link is
// too short.
const smallFragment = wire.SmallMTU - wire.Overhead

// limit cuts messages to a peer according to its limits.
func (e *Engine) limit(p *peer) {
	p.large, p.small = e.Now, 0
	e.cut(p, min(e.fragment, int(p.Limits.MTU)-wire.Overhead))
	e.long(p, int(p.Fragment), func(k *packet) { e.abort(k.message, PathMTU) }) // it went with a greeting
}

// cut has packets to a peer carry n bytes of a message. A message that has begun keeps its
// packets.
func (e *Engine) cut(p *peer, n int) {
	p.Fragment = uint16(n)
	for _, f := range &p.tx {
		if f == nil {
			continue
		}
		for i := f.Head; i != none; {
			m := &e.messages[i]
			next := e.links.Next(i)
			switch {
			case m.sent > 0:
			case m.total > p.Limits.Message:
				e.abort(i, TooLarge)
			default:
				m.fragment, m.count = p.Fragment, wire.Count(m.total, p.Fragment)
			}
			i = next
		}
	}
}

// fits reports whether the first message of each flow to a peer is one packet that any link
// carries.
func (e *Engine) fits(p *peer) bool {
	for _, f := range &p.tx {
		if f != nil && f.Head != none && e.messages[f.Head].count > 1 {
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
		p.large = e.Now
	}
	if p.longs == 0 || e.Now-p.large < e.cfg.PeerTimeout/2 || p.small == 0 || e.Now-p.small < e.cfg.PeerTimeout/4 ||
		e.Now-e.network(p).answered > e.cfg.PeerTimeout/8 {
		return
	}
	tried := false
	e.long(p, smallFragment, func(k *packet) { tried = tried || k.tries >= manyTries })
	if !tried {
		return
	}
	p.large, p.small = e.Now, 0
	e.long(p, smallFragment, func(k *packet) { e.abort(k.message, PathMTU) })
	e.cut(p, min(int(p.Fragment), smallFragment))
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
