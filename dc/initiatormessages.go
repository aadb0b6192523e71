package dc

import (
	"slices"
	"time"
)

// received takes a control message from a target.
func (c *initiatorCore) received(m *message, now time.Duration) {
	if m.sender != c.id || int(m.context) >= len(c.contexts) || int(m.peer) >= len(c.peers) {
		c.stats.Rubbish++
		return
	}
	x, p := &c.contexts[m.context], c.peers[m.peer]
	if p == nil {
		c.forgotten(m)
		return
	}
	if m.from.gid != p.addr.GID || m.from.qpn != p.qpn {
		c.stats.Rubbish++
		return
	}
	current := x.peer == p && x.session.attempt == m.attempt
	switch m.kind {
	case msgAttached:
		c.attached(x, p, current, m, now)
	case msgEstablished:
		c.confirmed(x, p, current, m, now)
	case msgBusy:
		c.busy(x, p, current, m, now)
	case msgRefuse:
		c.refused(x, p, current, m, now)
	case msgDetached:
		c.goodbyes = slices.DeleteFunc(c.goodbyes, func(f farewell) bool { return f.m.session == m.session && f.m.peer == m.peer })
	case msgRecall:
		c.recall(x, p, current, m, now)
	default:
		c.stats.Rubbish++
	}
}

func (c *initiatorCore) attached(x *initiatorContext, p *Peer, current bool, m *message, now time.Duration) {
	switch {
	case current && x.state == ctxConnecting:
		x.state = ctxJoining
		if x.pause == x.timer-x.session.heard { // not sent again since
			c.measure(now - x.session.heard)
		}
		x.session.id, x.session.lease, x.session.qpn, x.session.mtu = m.session, m.wait, m.qpn, uint8(m.mtu)
		p.epoch, p.firstTry = m.epoch, 0
		c.forget(p)
		if x.resetting {
			x.answer = *m
		} else {
			c.do(action{kind: actJoin, ctx: x, peer: p, m: *m})
		}
	case current && m.session == x.session.id, p.parked.id == m.session:
		// A copy.
	default:
		// The answer to a connect that nobody waits for any more.
		c.stats.Stale++
		c.send(p.place(), message{kind: msgDetach, epoch: m.epoch, session: m.session, context: m.context, attempt: m.attempt, peer: m.peer})
	}
}

// joined: the queue pair of the context is connected, or could not be.
func (c *initiatorCore) joined(x *initiatorContext, err error, now time.Duration) {
	p := x.peer
	if err != nil {
		x.broken = true
		c.fail(p, err)
		c.detach(x, now)
		return
	}
	x.state, x.since = ctxAttached, now
	c.uses++
	x.lastUse = c.uses
	x.timer = x.session.nextSign()
	p.wanted = false
	c.stats.Attaches++
	c.do(action{kind: actReady, peer: p, ctx: x})
}

// confirmed: the target has seen a sign of life and sends back when that was
// sent. The session may be parked meanwhile.
func (c *initiatorCore) confirmed(x *initiatorContext, p *Peer, current bool, m *message, now time.Duration) {
	s := &p.parked
	if current {
		s = &x.session
	}
	if s.id != m.session || s.id == 0 {
		return
	}
	age := milliseconds(now) - m.wait // of a clock that wraps
	at := now - time.Duration(age)*time.Millisecond
	if age > s.lease || at <= s.heard {
		return
	}
	s.heard = at
	if current {
		x.timer = s.nextSign()
	}
}

func milliseconds(t time.Duration) uint32 {
	return uint32((t + time.Millisecond - 1) / time.Millisecond)
}

func (c *initiatorCore) busy(x *initiatorContext, p *Peer, current bool, m *message, now time.Duration) {
	wait := time.Duration(m.wait) * time.Millisecond
	if !current || x.state != ctxConnecting {
		if wait == 0 && p.ctx == nil && p.queued {
			p.notBefore = 0 // its turn has come
			c.schedule(now)
		}
		return
	}
	if wait == 0 {
		return // a copy; the connect under way will be answered
	}
	c.stats.Busy++
	c.forget(p)    // p is in no line
	p.firstTry = 0 // it is alive: wait for its turn
	// Not all at the same time.
	p.notBefore = now + wait/2 + time.Duration(c.random()%1024)*wait/1024
	c.withdraw(x, now)
}

// withdraw ends a connect; the target waits in line again if it is still wanted.
func (c *initiatorCore) withdraw(x *initiatorContext, now time.Duration) {
	c.leave(x, now)
	dirty, s := x.dirty, ctxFree
	if x.resetting {
		dirty, s = false, ctxResetting
	}
	c.clear(x, s)
	x.dirty = dirty
	if s == ctxFree {
		c.serve(x, now)
	}
}

func (c *initiatorCore) refused(x *initiatorContext, p *Peer, current bool, m *message, now time.Duration) {
	switch {
	case !current:
		c.stats.Stale++
	case m.reason == staleSession && m.session == x.session.id && (x.state == ctxAttached || x.state == ctxDraining):
		c.abort(x)
		c.settle(x, now)
	case x.state != ctxConnecting:
		c.stats.Stale++
	case m.reason == staleTarget && m.epoch != p.epoch && p.addr.Incarnation == 0:
		// Another target has the address now: what is not posted goes there.
		p.epoch = m.epoch
		c.forget(p)
		c.reconnect(x, now)
	default:
		err := ErrRefused
		if m.reason == badKey {
			err = ErrAccessKey
		}
		c.abandon(x, err, now)
	}
}

// recall: others wait for the responder context of a session.
func (c *initiatorCore) recall(x *initiatorContext, p *Peer, current bool, m *message, now time.Duration) {
	switch {
	case p.parked.id == m.session && m.session != 0:
		c.farewell(p, &p.parked, noReason, now)
		c.lose(p, now)
	case current && m.session == x.session.id && x.state == ctxAttached:
		x.recalled = true
		if x.outstanding == 0 && p.pending == 0 || x.used >= c.quota {
			x.state = ctxDraining
			c.settle(x, now)
		}
	}
}

// abandon gives up a connect.
func (c *initiatorCore) abandon(x *initiatorContext, err error, now time.Duration) {
	c.fail(x.peer, err)
	c.withdraw(x, now)
}

// fail ends all requests that wait for a target.
func (c *initiatorCore) fail(p *Peer, err error) {
	p.pending, p.wanted, p.firstTry, p.notBefore = 0, false, 0, 0
	c.unline(p)
	c.forget(p)
	c.do(action{kind: actFail, peer: p, err: err})
}
