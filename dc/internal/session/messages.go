package session

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// Received takes a control message from a target.
func (c *Initiator) Received(m *wire.Message, now time.Duration) {
	if m.Sender != c.ID || int(m.Context) >= len(c.Contexts) || int(m.Peer) >= len(c.peers) {
		c.Stats.Malformed++
		return
	}
	x, p := &c.Contexts[m.Context], c.peers[m.Peer]
	if p == nil || m.From.GID != p.at.GID || m.From.QPN != p.at.QPN {
		c.removed(m, now)
		return
	}
	defer c.dispatch(now)
	defer c.replied(p, now)
	current := x.peer == p && x.Session.Attempt == m.Attempt
	switch m.Kind {
	case wire.Attached:
		c.attached(x, p, current, m, now)
	case wire.Alive:
		c.confirmed(x, p, current, m, now)
	case wire.Busy:
		c.busy(x, p, current, m, now)
	case wire.Refused:
		c.refused(x, p, current, m, now)
	case wire.Detached:
		c.parted(m)
	case wire.Recall:
		c.recall(x, p, current, m, now)
	default:
		c.Stats.Malformed++
	}
}

// parted takes the reply to a Detach.
func (c *Initiator) parted(m *wire.Message) {
	c.disconnects = slices.DeleteFunc(c.disconnects, func(d disconnect) bool {
		return d.m.Peer == m.Peer && d.m.Context == m.Context && d.m.Attempt == m.Attempt && d.m.Session == m.Session
	})
}

// removed takes a message from a target that is no longer known, though another one may
// have its number: at most a session to be closed. What closes it has the target's key, so
// no other target accepts it.
func (c *Initiator) removed(m *wire.Message, now time.Duration) {
	p, known := c.gone[m.Peer]
	if !known || m.From.GID != p.at.GID || m.From.QPN != p.at.QPN {
		c.Stats.Malformed++
		return
	}
	switch m.Kind {
	case wire.Attached, wire.Recall: // what gave a session that is recalled was lost
		c.decline(m, p, now)
	case wire.Detached:
		c.parted(m)
	}
}

func (c *Initiator) attached(x *Context, p *Peer, current bool, m *wire.Message, now time.Duration) {
	switch {
	case current && x.state == connecting:
		x.state = joining
		if x.unanswered == 0 {
			c.rtt.Sample(now - x.Session.heard)
		}
		s := &x.Session
		s.ID, s.Lease, s.QPN, s.MTU, s.counts = m.Session, m.Wait, m.QPN, m.MTU, m.Key&wire.PacketsCount != 0
		p.epoch, p.firstTry = m.Epoch, 0
		p.kept = Session{}
		if x.resetting {
			x.answer = *m
		} else {
			c.do(Action{Kind: ActJoin, Context: x, Peer: p, Message: *m})
		}
	case current && m.Session == x.Session.ID, p.kept.ID == m.Session: // a copy
	default:
		// A reply that is not waited for any more.
		c.decline(m, p.address(), now)
	}
}

// decline closes a session that is not wanted any more.
func (c *Initiator) decline(m *wire.Message, to keyedAddress, now time.Duration) {
	if !slices.ContainsFunc(c.disconnects, func(d disconnect) bool { return d.m.Session == m.Session && d.m.Peer == m.Peer }) {
		c.part(to, wire.Message{Kind: wire.Detach, Epoch: m.Epoch, Session: m.Session, Context: m.Context, Attempt: m.Attempt, Peer: m.Peer}, now)
	}
}

// confirmed takes the reply to a keep-alive, which holds the time when that was sent.
// The session may be kept meanwhile. Without a session it is the reply to a
// probe.
func (c *Initiator) confirmed(x *Context, p *Peer, current bool, m *wire.Message, now time.Duration) {
	age := milliseconds(now) - m.Wait // of a clock that wraps
	sent := time.Duration(age) * time.Millisecond
	if m.Session == 0 {
		if p.rest == probed && sent <= c.ConnectTimeout {
			c.rtt.Sample(sent)
		}
		return
	}
	s := &p.kept
	if current {
		s = &x.Session
	}
	if s.ID != m.Session {
		return
	}
	at := now - sent
	if age > s.Lease || at <= s.heard {
		return
	}
	s.heard = at // which keepAlive sees
}

func (c *Initiator) busy(x *Context, p *Peer, current bool, m *wire.Message, now time.Duration) {
	wait := time.Duration(m.Wait) * time.Millisecond
	if !current || x.state != connecting {
		if wait == 0 && p.rest == postponed && p.notReady == 0 { // its turn has come
			c.rests.clear(p)
			c.queue(p, now)
		}
		return
	}
	if wait == 0 {
		return // a copy; a reply to the connect under way will come
	}
	c.Stats.Busy++
	p.kept = Session{}
	p.firstTry = 0 // it is alive: wait for its turn
	if x.unanswered > 0 {
		c.disconnect(p, &x.Session, wire.NoReason, now) // of a copy that may be served yet
	}
	c.unlink(x, now)
	if p.wanted || p.pending > 0 {
		// Not all at the same time.
		c.postpone(p, now+wait/2+time.Duration(c.random()%1024)*wait/1024)
	}
	c.vacant(x, now)
}

func (c *Initiator) refused(x *Context, p *Peer, current bool, m *wire.Message, now time.Duration) {
	switch {
	case m.Reason == wire.StaleSession && m.Session == p.kept.ID:
		c.lose(p, now)
	case !current:
	case m.Reason == wire.StaleSession && m.Session == x.Session.ID && (x.state == attached || x.state == draining):
		c.abort(x, ErrStale)
		c.settle(x, now)
	case x.state != connecting, m.Reason == wire.StaleSession: // of an earlier answer to a copy, perhaps
	case m.Reason == wire.StaleTarget && m.Epoch != p.epoch && p.generation == 0:
		// Another target has the address now: what is not posted goes there.
		p.epoch = m.Epoch
		p.kept = Session{}
		c.begin(x, now)
	default:
		c.fail(p, ErrRefused, now)
		c.leave(x, now)
		c.vacant(x, now)
	}
}

// recall takes a message that others wait for the responder context of a session.
func (c *Initiator) recall(x *Context, p *Peer, current bool, m *wire.Message, now time.Duration) {
	switch {
	case m.Session == 0:
	case p.kept.ID == m.Session:
		c.disconnect(p, &p.kept, wire.NoReason, now)
		c.lose(p, now)
	case current && m.Session == x.Session.ID && x.state == attached:
		if !x.recalled {
			x.recalled, x.since, c.Retime = true, now, true
		}
		if x.outstanding == 0 && p.pending == 0 {
			x.state = draining
			c.settle(x, now)
		}
	case current: // it is about to be known
	default:
		c.decline(m, p.address(), now) // what gave it was lost
	}
}
