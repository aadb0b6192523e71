package session

import (
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// A target waits in one of two kinds of line: while a session is kept for it, in
// that of the context that the session belongs to; otherwise in the general one,
// for whichever context is first.

// queue lets a target wait for a context, and serves it if there is one.
func (c *Initiator) queue(p *Peer, now time.Duration) {
	c.wait(p, now, now)
	x := c.home(p, now)
	if x == nil {
		c.schedule(now)
	} else if x.empty() {
		c.serve(x, now)
	}
}

// wait puts a target into its line.
func (c *Initiator) wait(p *Peer, since, now time.Duration) {
	p.since = since
	c.waiting++
	p.Stats.Waits++
	c.Stats.Waits++
	l := &c.general
	if x := c.home(p, now); x != nil {
		l = &x.line
	}
	c.Retime = c.Retime || l.empty()
	l.add(p)
}

// home returns the context for which a target has to wait, or nil if any will do.
func (c *Initiator) home(p *Peer, now time.Duration) *Context {
	if p.kept.ID == 0 || now > p.kept.usable() {
		return nil
	}
	if x := &c.Contexts[p.kept.Context]; !x.stuck && x.state != damaged {
		return x
	}
	return nil
}

// unline takes a target out of its line.
func (c *Initiator) unline(p *Peer) {
	if p.line != nil {
		p.line.remove(p)
		c.waiting--
	}
}

// unrest ends what a target waits for, whatever that is.
func (c *Initiator) unrest(p *Peer) {
	c.unline(p)
	c.rests.clear(p)
	p.rest = nowhere
}

// wanted reports whether a target waits for the context.
func (c *Initiator) wanted(x *Context) bool { return !x.line.empty() || !c.general.empty() }

// empty reports whether nothing needs the context.
func (x *Context) empty() bool {
	return x.state == free || x.state == attached && x.outstanding == 0 && x.peer.pending == 0
}

// dispatch serves the targets that have begun to wait while something else was done,
// perhaps for a context that is empty.
func (c *Initiator) dispatch(now time.Duration) {
	for c.lined {
		c.lined = false
		c.schedule(now)
		for i := range c.Contexts {
			if x := &c.Contexts[i]; !x.line.empty() && x.empty() {
				c.serve(x, now)
			}
		}
	}
}

// schedule gives empty contexts to targets in the general line. A context that is
// being reset serves one of them then.
func (c *Initiator) schedule(now time.Duration) {
	for c.general.n > c.resets {
		x := c.anyEmpty()
		if x == nil {
			return
		}
		c.serve(x, now)
	}
}

// anyEmpty returns an empty context, or nil: one that is ready, or else the
// least recently used.
func (c *Initiator) anyEmpty() *Context {
	var best *Context
	for i := range c.Contexts {
		x := &c.Contexts[i]
		switch {
		case !x.empty():
		case x.state == free && !x.dirty:
			return x
		case best == nil, x.state == free && best.state != free, x.state == best.state && x.lastUse < best.lastUse:
			best = x
		}
	}
	return best
}

// serve gives an empty context to the target that comes first, and reports whether it did.
func (c *Initiator) serve(x *Context, now time.Duration) bool {
	if !c.wanted(x) {
		return false
	}
	if x.state == attached {
		c.Stats.Evictions++
		c.vacate(x, now)
		if x.state != free {
			return false
		}
	}
	p := c.first(x, now)
	c.unline(p)
	p.Stats.Waited += now - p.since
	c.Stats.Waited += now - p.since
	if p.kept.ID != 0 && int(p.kept.Context) == x.Index && now <= p.kept.usable() && !x.departures.recent(p, now) {
		c.resume(x, p, now)
	} else {
		c.connect(x, p, now)
	}
	return true
}

// first returns the target that a context serves first. A target that has had its turn lets
// one other go in front, whatever its backlog. A target that has waited for too long, in the
// line of another context, comes before one that has not.
func (c *Initiator) first(x *Context, now time.Duration) *Peer {
	p, had := x.line.next(&c.general, now, c.MaxWait), x.yielded
	x.yielded = nil
	if l := p.line; p == had && x.line.n+c.general.n > 1 {
		l.remove(p)
		p = x.line.next(&c.general, now, c.MaxWait)
		l.add(had)
	}
	if now-p.since < c.MaxWait {
		for i := range c.Contexts {
			if q := c.Contexts[i].line.ages.first; q != nil && now-q.since >= c.MaxWait && q.since < p.since {
				p = q
			}
		}
	}
	return p
}

// settle does what had to wait for the last completion of a context.
func (c *Initiator) settle(x *Context, now time.Duration) {
	if x.outstanding > 0 {
		return
	}
	switch {
	case x.state == draining && !x.recalled && !x.moved && !c.wanted(x):
		// Others found another context meanwhile.
		x.state, x.used, x.since = attached, 0, now
		x.peer.wanted = false // Attach, which has what it asked for
		c.do(Action{Kind: ActReady, Peer: x.peer, Context: x})
	case x.state == draining, x.state == aborting, x.state == attached && x.recalled && x.peer.pending == 0:
		x.yielded = x.peer
		c.vacate(x, now)
	}
	if x.empty() {
		c.serve(x, now)
	}
}

// vacate makes a context without outstanding requests leave its target.
func (c *Initiator) vacate(x *Context, now time.Duration) {
	if !c.Keep || x.broken || x.recalled || now > x.Session.usable() {
		c.detach(x, now)
		return
	}
	x.peer.kept = x.Session
	c.leave(x, now)
	x.stay = stay{state: free, dirty: true}
}

// detach closes the session of a context without outstanding requests.
func (c *Initiator) detach(x *Context, now time.Duration) {
	why := wire.NoReason
	if x.broken {
		why = wire.Broken
	}
	c.disconnect(x.peer, &x.Session, why, now)
	c.leave(x, now)
	c.reset(x, now)
}

// reset makes the queue pair of a context ready for the next session.
func (c *Initiator) reset(x *Context, now time.Duration) {
	x.stay = stay{state: resetting, looked: now}
	c.resets++
	c.do(Action{Kind: ActReset, Context: x})
}

// disconnect tells a target that a session is over, until it replies.
func (c *Initiator) disconnect(p *Peer, s *Session, why wire.Reason, now time.Duration) {
	c.part(p.address(), wire.Message{Kind: wire.Detach, Reason: why, Session: s.ID, Context: uint32(s.Context), Attempt: s.Attempt, Peer: p.Number, Epoch: p.epoch}, now)
}

// part sends what ends a session until a reply comes, with the key that the target has:
// its number may be another one's then.
func (c *Initiator) part(to keyedAddress, m wire.Message, now time.Duration) {
	m.Sender, m.Key = c.ID, to.key
	c.do(Action{Kind: ActSend, To: to.at, Message: m})
	c.disconnects = append(c.disconnects, disconnect{m: m, to: to.at, timer: now + c.timeout(), pause: 2 * c.timeout()})
	c.Retime = true
}

// unlink parts a context and its target.
func (c *Initiator) unlink(x *Context, now time.Duration) {
	if x.state != connecting { // it has sent packets there
		x.departures.add(x.peer, now, c.TimeWait)
	}
	x.peer.ctx, x.peer = nil, nil
}

// leave parts a context and its target, which waits again if it is still wanted.
func (c *Initiator) leave(x *Context, now time.Duration) {
	p := x.peer
	c.unlink(x, now)
	switch {
	case p.pending == 0 && !p.wanted:
	case x.notReady:
		p.notReady = min(max(2*p.notReady, time.Millisecond), 128*time.Millisecond)
		c.postpone(p, now+p.notReady)
	default:
		c.wait(p, now, now)
	}
}

// postpone lets a target come again at a time.
func (c *Initiator) postpone(p *Peer, at time.Duration) {
	p.rest = postponed
	c.rests.set(p, at)
	c.Retime = true
}

// lose drops the session that is kept for a target; that then waits for any
// context.
func (c *Initiator) lose(p *Peer, now time.Duration) {
	p.kept = Session{}
	if p.rest == inLine && p.line != &c.general {
		p.line.remove(p)
		c.general.add(p)
		c.lined, c.Retime = true, true
	}
}

// ResetDone takes the result of a reset: the queue pair can be connected again, or not.
func (c *Initiator) ResetDone(x *Context, err error, now time.Duration) {
	defer c.dispatch(now)
	if x.state == resetting {
		c.resets--
		c.lined = true // perhaps it serves another target than the one that counts on it
	}
	if err != nil {
		c.damaged(x, now)
		return
	}
	x.resetting, x.dirty, x.failures = false, false, 0
	switch {
	case x.state == resetting, x.state == damaged:
		x.stay = stay{state: free}
		c.serve(x, now)
	case x.answer.Kind != 0:
		c.do(Action{Kind: ActJoin, Context: x, Peer: x.peer, Message: x.answer})
	}
}

// damaged puts aside a context with a queue pair that could not be made ready, until it
// is tried again.
func (c *Initiator) damaged(x *Context, now time.Duration) {
	// Sessions are with the queue pair, which is going to be another one.
	for _, p := range c.peers {
		if p != nil && int(p.kept.Context) == x.Index {
			c.giveBack(p, now)
		}
	}
	if p := x.peer; p != nil { // that the context was to be connected to
		c.disconnect(p, &x.Session, wire.Broken, now)
		c.giveBack(p, now) // what the connect packet replaces
		p.firstTry = 0     // it was not the target that failed
		c.leave(x, now)
	}
	x.failures++
	x.stay = stay{state: damaged, timer: now + repairPause<<min(x.failures, 10)}
	c.Retime = true
	for p := x.line.ages.first; p != nil; p = x.line.ages.first {
		x.line.remove(p)
		c.general.add(p)
	}
	c.lined = true
	if c.hopeless() {
		for _, p := range c.peers {
			if p != nil && p.rest != nowhere {
				c.fail(p, ErrNoContexts, now)
			}
		}
	}
}

const (
	repairPause = 10 * time.Millisecond
	// lastRepair is how often each context must have failed before requests do.
	lastRepair = 3
)

// hopeless reports whether all contexts have failed again and again.
func (c *Initiator) hopeless() bool {
	for i := range c.Contexts {
		if c.Contexts[i].failures < lastRepair {
			return false
		}
	}
	return true
}
