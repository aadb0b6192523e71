package dc

import "time"

// searchAfter is how many connect packets must stay unanswered before the
// target's service is asked: one is easily lost.
const searchAfter = 2

// search asks where a target is that does not answer, if it has a service that
// knows. There is one question at a time; unless it helps, the next packet that
// stays unanswered brings another.
func (c *initiatorCore) search(x *initiatorContext) {
	if p := x.peer; x.unanswered >= searchAfter && p.addr.Service != 0 && !p.asking {
		p.asking = true
		c.stats.Lookups++
		c.do(action{kind: actLookup, peer: p})
	}
}

// found: the service of a target has answered, or not.
func (c *initiatorCore) found(p *Peer, a *Address, err error, now time.Duration) {
	p.asking = false
	if err != nil || !c.knows(p) || a.QPN == p.qpn && a.QKey == p.qkey {
		return
	}
	// It was restarted, and its sessions are gone. One that has a context fails
	// by itself.
	p.qpn, p.qkey, p.epoch = a.QPN, a.QKey, p.addr.Incarnation
	if x := p.ctx; x != nil && x.state == ctxConnecting {
		c.forget(p)
		c.reconnect(x, now)
	} else if p.parked.id != 0 {
		c.lose(p, now)
	}
}

// reconnect begins a connect anew: nobody knows of the last attempt.
func (c *initiatorCore) reconnect(x *initiatorContext, now time.Duration) {
	x.attempts++
	x.unanswered = 0
	x.session.attempt, x.session.psn, x.session.heard = x.attempts, c.firstPSN(x), now
	x.pause = c.timeout()
	x.timer = now + x.pause
	c.sendConnect(x)
}
