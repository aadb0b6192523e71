package dci

import (
	"cmp"
)

// Place gives a peer a DCI and a stream if it has none. It returns false if no
// DCI is left.
func (c *Machine) Place(p *Peer) bool {
	if p.dci != nil {
		return true
	}
	if d := p.last; d != nil && d.idle() && !d.streams[0].failed { // none is better
		p.dci, p.stream = d, 0
	} else if !c.choose(p) {
		return false
	}
	p.dci.peers++
	p.dci.streams[p.stream].peers++
	c.Stats.Attaches++
	p.Attaches++
	return true
}

// choose gives a peer the best DCI and the best stream there.
func (c *Machine) choose(p *Peer) bool {
	var best *DCI
	for i := range c.DCIs {
		d := &c.DCIs[i]
		if d.state != lostDCI && (best == nil || d.better(best)) {
			best = d
		}
	}
	if best == nil {
		return false
	}
	p.dci, p.stream = best, 0
	for s := range best.streams {
		if best.streams[s].better(&best.streams[p.stream]) {
			p.stream = s
		}
	}
	return true
}

// better prefers streams that work, then those with few peers.
func (s *stream) better(than *stream) bool {
	if s.failed != than.failed {
		return than.failed
	}
	return s.peers < than.peers
}

// better prefers DCIs that work, then those with little to do, then those with
// few peers.
func (d *DCI) better(than *DCI) bool {
	if d.Ready() != than.Ready() {
		return d.Ready()
	}
	return cmp.Or(cmp.Compare(d.load(), than.load()), cmp.Compare(d.peers, than.peers)) < 0
}

// leave parts a peer and its DCI.
func (c *Machine) leave(p *Peer) {
	d := p.dci
	if c.unline(p) {
		d.pending -= p.pending
	}
	d.peers--
	d.streams[p.stream].peers--
	p.dci, p.last = nil, d
}

// move finds another place for a peer that has none of its requests any more in its
// own place, which is out of order.
func (c *Machine) move(p *Peer) {
	c.leave(p)
	if c.Place(p) {
		c.line(p)
		return
	}
	p.pending = 0
	c.do(Action{Kind: GiveUp, Peer: p, Err: c.lost})
}
