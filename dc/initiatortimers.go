package dc

import (
	"slices"
	"time"
)

// never is when nothing is to be done.
const never = time.Duration(1<<63 - 1)

// stuckAfter is how many times the bound on holding a context may pass without
// any completion before those that wait for it go elsewhere.
const stuckAfter = 2

// next is when tick should be called.
func (c *initiatorCore) next() time.Duration {
	t := never
	for i := range c.contexts {
		x := &c.contexts[i]
		switch x.state {
		case ctxConnecting:
			t = min(t, x.timer, x.giveUp)
		case ctxAttached, ctxDraining:
			if x.session.lease > 0 {
				t = min(t, x.timer)
			}
			if x.state == ctxAttached && c.wanted(x) {
				t = min(t, x.since+c.hold)
			}
		}
		if len(x.line) > 0 && !x.stuck {
			t = min(t, x.looked+stuckAfter*c.hold)
		}
	}
	for i := range c.goodbyes {
		t = min(t, c.goodbyes[i].timer)
	}
	for _, p := range c.waiting {
		if p.notBefore > 0 {
			t = min(t, p.notBefore)
		}
	}
	return t
}

// tick does what is due.
func (c *initiatorCore) tick(now time.Duration) {
	c.retime = true
	for i := range c.contexts {
		x := &c.contexts[i]
		if x.state == ctxAttached && c.wanted(x) && now-x.since >= c.hold {
			x.state = ctxDraining // it has had its turn
			c.settle(x, now)
		}
		if len(x.line) > 0 && now-x.looked >= stuckAfter*c.hold {
			c.look(x, now)
		}
		switch {
		case x.state == ctxConnecting && now >= x.giveUp:
			c.abandon(x, ErrUnreachable, now)
		case x.state == ctxConnecting && now >= x.timer:
			c.stats.Retransmits++
			x.pause = min(2*x.pause, 16*c.timeout())
			x.timer = now + x.pause
			x.unanswered++
			c.sendConnect(x)
			c.search(x)
		case (x.state == ctxAttached || x.state == ctxDraining) && x.session.lease > 0 && now >= x.timer:
			c.sign(x, now)
		}
	}
	const lastTry = 8 // the lease does the rest
	c.goodbyes = slices.DeleteFunc(c.goodbyes, func(f farewell) bool { return f.tries >= lastTry })
	for i := range c.goodbyes {
		if f := &c.goodbyes[i]; now >= f.timer {
			f.tries++
			f.timer = now + f.pause
			f.pause *= 2
			c.stats.Retransmits++
			c.send(f.to, f.m)
		}
	}
	for _, p := range c.waiting {
		if p.notBefore <= now {
			p.notBefore = 0
		}
	}
	c.schedule(now)
}

// look sees whether a context makes progress.
func (c *initiatorCore) look(x *initiatorContext, now time.Duration) {
	x.looked = now
	if x.done != x.seen {
		x.seen = x.done
		return
	}
	x.stuck = true
	c.waiting = append(c.waiting, x.line...)
	x.line = nil
}

// nextSign is when the target should hear again of a session in use: after an
// eighth to three eighths of the lease, by its id, so that sessions made together
// do not all ask at the same time.
func (s *session) nextSign() time.Duration {
	return s.heard + s.leaseTime()/8 + time.Duration(s.id%1024)*s.leaseTime()/4096
}

// sign sends a sign of life, and soon another unless the target answers.
func (c *initiatorCore) sign(x *initiatorContext, now time.Duration) {
	x.timer = now + max(x.session.leaseTime()/8, time.Millisecond)
	c.send(x.peer.place(), message{kind: msgEstablished, epoch: x.peer.epoch, session: x.session.id, context: uint32(x.index),
		attempt: x.session.attempt, peer: x.peer.number, wait: uint32(now / time.Millisecond)})
}
