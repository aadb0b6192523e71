package session

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// stuckAfter is how many times the bound on holding a context may pass without
// any completion before those that wait for it go elsewhere.
const stuckAfter = 2

// Next returns when Tick should be called, at the latest. It is called again after that, and
// when Retime says so.
func (c *Initiator) Next() time.Duration {
	c.told = c.soonest()
	return c.told
}

// soonest returns when the first thing is due.
func (c *Initiator) soonest() time.Duration {
	t := c.rests.next()
	for i := range c.Contexts {
		t = min(t, c.due(&c.Contexts[i]))
	}
	for i := range c.disconnects {
		t = min(t, c.disconnects[i].timer)
	}
	return t
}

// due returns when something is to be done about a context.
func (c *Initiator) due(x *Context) time.Duration {
	t := Never
	switch x.state {
	case connecting:
		t = min(x.timer, x.peer.firstTry+c.ConnectTimeout)
	case damaged:
		t = x.timer
	case attached, draining:
		if x.Session.Lease > 0 {
			t = x.timer
		}
		if c.limited(x) {
			t = min(t, x.since+c.Hold)
		}
	}
	if !x.line.empty() && !x.stuck {
		t = min(t, x.looked+stuckAfter*c.Hold)
	}
	return t
}

// limited reports whether the stay of a target in a context ends with the bound on
// holding it. One that is empty does not hold it: it leaves when another target is served.
func (c *Initiator) limited(x *Context) bool {
	return x.state == attached && !x.empty() && (x.recalled || c.wanted(x))
}

// Tick does what is due.
func (c *Initiator) Tick(now time.Duration) {
	c.Retime = true
	for i := range c.Contexts { // first: the targets that wait elsewhere then count for all
		if x := &c.Contexts[i]; !x.line.empty() && now-x.looked >= stuckAfter*c.Hold {
			c.look(x, now)
		}
	}
	for i := range c.Contexts {
		c.tick(&c.Contexts[i], now)
	}
	const lastTry = 8 // the lease does the rest
	c.disconnects = slices.DeleteFunc(c.disconnects, func(d disconnect) bool { return d.tries >= lastTry })
	for i := range c.disconnects {
		if d := &c.disconnects[i]; now >= d.timer {
			d.tries++
			d.timer = now + d.pause
			d.pause *= 2
			c.Stats.Retransmits++
			c.do(Action{Kind: ActSend, To: d.to, Message: d.m})
		}
	}
	for c.rests.next() <= now {
		p := c.rests[0]
		c.rests.clear(p)
		switch {
		case p.rest == postponed:
			c.queue(p, now)
		case now >= p.firstTry+c.ConnectTimeout:
			c.fail(p, ErrUnreachable, now)
		default:
			c.Stats.Retransmits++
			c.search(p, searchAfter)
			c.probe(p, now)
		}
	}
	c.dispatch(now)
}

func (c *Initiator) tick(x *Context, now time.Duration) {
	if c.limited(x) && now-x.since >= c.Hold {
		x.state = draining // it has had its turn
		c.settle(x, now)
	}
	switch x.state {
	case connecting:
		if now >= x.timer || now >= x.peer.firstTry+c.ConnectTimeout {
			c.silent(x, now)
		}
	case attached, draining:
		if x.Session.Lease > 0 && now >= x.timer {
			c.keepAlive(x, now)
		}
	case damaged:
		if now >= x.timer {
			x.timer = Never
			c.do(Action{Kind: ActReset, Again: true, Context: x})
		}
	}
}

// look sees whether a context makes progress. If not, the targets that wait for it go
// elsewhere.
func (c *Initiator) look(x *Context, now time.Duration) {
	x.looked = now
	if x.done != x.seen {
		x.seen = x.done
		return
	}
	x.stuck = true
	for p := x.line.ages.first; p != nil; p = x.line.ages.first {
		x.line.remove(p)
		c.general.add(p)
	}
	c.lined = true
}

// keepAlive sends a keep-alive, and soon another unless the target replies; but not
// if requests have succeeded meanwhile.
func (c *Initiator) keepAlive(x *Context, now time.Duration) {
	if x.timer = x.Session.nextKeepAlive(); now < x.timer {
		return
	}
	x.timer = now + max(x.Session.lease()/8, time.Millisecond)
	c.send(x.peer, wire.Message{Kind: wire.KeepAlive, Session: x.Session.ID, Context: uint32(x.Index), Attempt: x.Session.Attempt, Wait: uint32(now / time.Millisecond)})
}

// Part sends to the targets when the initiator ends: their sessions are over, and those that
// they were asked for are not wanted. It is sent once; if it is lost, the lease does the rest.
func (c *Initiator) Part() {
	for k := range c.Contexts {
		x := &c.Contexts[k]
		switch x.state {
		case connecting, attached, draining, aborting, joining:
			c.disconnect(x.peer, &x.Session, wire.Broken, 0)
		}
	}
	for _, p := range c.peers {
		if p != nil && p.kept.ID != 0 {
			c.disconnect(p, &p.kept, wire.NoReason, 0)
		}
	}
}
