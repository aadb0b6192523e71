package engine

import (
	"math/bits"
	"time"
)

// owes records that a response went by a path without a message. It is confirmed only by the
// paths that the peer says it has heard.
func (e *Engine) owes(p *peer, i uint8) {
	if p.net == nil || p.net.turn.waits { // it sends nothing that could name it
		return
	}
	e.unnamed(p, true)
	x := &p.net.paths[i]
	if x.owed == 0 {
		x.owedSince = e.Now
	}
	x.respondedAt = e.Now
	x.owed = min(x.owed+1, 255-1)
	if x.owed >= maxOwed && e.Now-x.owedSince > max(2*p.net.middle, 4*e.cfg.MinTimeout) {
		e.suspect(p, x)
	}
}

// unnamed has Silent called for each quarter of PeerTimeout in which a peer sends, and names none
// of the responses. Echoes, which it does not name, are no such quarter's begin.
func (e *Engine) unnamed(p *peer, response bool) {
	n := p.net
	switch {
	case n == nil:
	case n.unnamed == 0 && response:
		n.unnamed = max(1, e.Now)
	case n.unnamed > 0 && e.Now-n.unnamed >= e.cfg.PeerTimeout/4 && e.cfg.Silent != nil:
		n.unnamed = e.Now
		e.cfg.Silent(p.Addr)
	}
}

// named records the paths by which the peer says it heard this side.
func (e *Engine) named(p *peer, paths uint16) {
	n := p.net
	if n == nil || paths == 0 {
		return
	}
	n.unnamed = 0
	e.age(n)
	newest := time.Duration(0)
	for set := paths & (1<<e.cfg.Paths - 1); set != 0; set &= set - 1 {
		if x := &n.paths[bits.TrailingZeros16(set)]; x.owed > 0 {
			newest, x.owed = max(newest, x.respondedAt), 0
			x.count(0)
		}
	}
	if newest == 0 {
		return
	}
	allowed := max(n.middle/2, e.cfg.MinTimeout/4)
	for i := range n.paths[:e.cfg.Paths] { // what a later response overtook is lost, or the word of it was
		if x := &n.paths[i]; x.owed > 0 && x.respondedAt+allowed < newest {
			x.owed = 0
			x.count(1)
			n.limit = 2*e.median(n) + lossSlack
			e.suspect(p, x)
		}
	}
}

// retire takes a path out of use, until echoes come back by it. Two are always used.
func (e *Engine) retire(p *peer, i uint8) {
	n := e.network(p)
	x := &n.paths[i]
	if x.retired || int(n.live) <= fewestPaths {
		return
	}
	e.Stats.Retired++
	n.live--
	x.retired, x.suspect, x.again, x.got = true, false, false, 0
	x.probeAt = e.Now + e.probeInterval(p)
	for _, f := range &p.tx { // what went by it need not wait for the timer
		if f == nil {
			continue
		}
		for f.live != nil && !f.live.subs[i].empty() {
			e.lose(f, f.live.number(f, f.live.subs[i].head))
		}
	}
	e.Wake(&p.Peer, x.probeAt)
}
