package dc

import (
	"slices"
	"time"
)

// A target waits in one of two kinds of line: with a parked session, in that of
// the context that the session belongs to; otherwise in the general one, for
// whichever context is first.

// line puts a target at the end of those that wait.
func (c *initiatorCore) line(p *Peer, now time.Duration) {
	if p.queued {
		return
	}
	p.queued, p.lined = true, now
	c.retime = true
	if p.parked.id != 0 && now <= p.parked.parkable() {
		if x := &c.contexts[p.parked.context]; !x.stuck {
			x.line = append(x.line, p)
			return
		}
	}
	c.waiting = append(c.waiting, p)
}

// unline takes a target out of its line.
func (c *initiatorCore) unline(p *Peer) {
	if !p.queued {
		return
	}
	p.queued = false
	own := func(q *Peer) bool { return q == p }
	c.waiting = slices.DeleteFunc(c.waiting, own)
	if p.parked.id != 0 {
		x := &c.contexts[p.parked.context]
		x.line = slices.DeleteFunc(x.line, own)
	}
}

// wanted tells whether somebody waits for the context.
func (c *initiatorCore) wanted(x *initiatorContext) bool {
	return len(x.line) > 0 || len(c.waiting) > 0
}

// empty tells whether nothing needs the context.
func (x *initiatorContext) empty() bool {
	return x.state == ctxFree || x.state == ctxAttached && x.outstanding == 0 && x.peer.pending == 0
}

// schedule gives empty contexts to targets in the general line.
func (c *initiatorCore) schedule(now time.Duration) {
	for i := 0; i < len(c.waiting); {
		if c.waiting[i].notBefore > now {
			i++
			continue
		}
		x := c.any()
		if x == nil {
			return
		}
		if !c.serve(x, now) {
			i++ // x is being reset, and serves then
		}
	}
}

// any is an empty context, if there is one: one that is ready, or else the least
// recently used.
func (c *initiatorCore) any() *initiatorContext {
	var best *initiatorContext
	for i := range c.contexts {
		x := &c.contexts[i]
		switch {
		case !x.empty():
		case x.state == ctxFree && !x.dirty:
			return x
		case best == nil, x.state == ctxFree && best.state != ctxFree, x.state == best.state && x.lastUse < best.lastUse:
			best = x
		}
	}
	return best
}

// serve gives an empty context to who has waited longest for it, and tells
// whether it did.
func (c *initiatorCore) serve(x *initiatorContext, now time.Duration) bool {
	i := slices.IndexFunc(c.waiting, func(p *Peer) bool { return p.notBefore <= now })
	own := len(x.line) > 0 && (i < 0 || x.line[0].lined <= c.waiting[i].lined)
	if !own && i < 0 {
		return false
	}
	if x.state == ctxAttached {
		c.stats.Evictions++
		c.vacate(x, now)
		if x.state != ctxFree {
			return false
		}
	}
	var p *Peer
	if own {
		p = x.line[0]
		x.line = slices.Delete(x.line, 0, 1)
	} else {
		p = c.waiting[i]
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	p.queued = false
	if p.parked.id != 0 && int(p.parked.context) == x.index && now <= p.parked.parkable() &&
		(c.parking == ParkAlways || !x.departures.recent(p, now)) {
		c.resume(x, p, now)
	} else {
		c.connect(x, p, now)
	}
	return true
}

// settle does what had to wait for the last completion of a context.
func (c *initiatorCore) settle(x *initiatorContext, now time.Duration) {
	if x.outstanding > 0 {
		return
	}
	switch {
	case x.state == ctxDraining && !x.recalled && !c.wanted(x):
		// Others found another context meanwhile.
		x.state, x.used, x.since = ctxAttached, 0, now
		c.do(action{kind: actReady, peer: x.peer, ctx: x})
		return
	case x.state == ctxDraining, x.state == ctxAborting, x.state == ctxAttached && x.recalled && x.peer.pending == 0:
		c.vacate(x, now)
	}
	if x.empty() {
		c.serve(x, now)
	}
}
