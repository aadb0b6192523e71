package session

import (
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// resume takes up a session that was kept.
func (c *Initiator) resume(x *Context, p *Peer, now time.Duration) {
	x.state, x.peer, p.ctx, x.since = joining, p, x, now
	x.looked = now
	x.Session = p.kept
	c.forget(p)
	c.Stats.Resumes++
	p.Stats.Resumes++
	m := wire.Message{QPN: x.Session.QPN, MTU: x.Session.MTU, From: p.at}
	c.do(Action{Kind: ActJoin, Again: x.dirty, Context: x, Peer: p, Message: m})
	x.dirty = false
}

// connect sends the first connect packet of a session.
func (c *Initiator) connect(x *Context, p *Peer, now time.Duration) {
	x.state, x.peer, p.ctx, x.since = connecting, p, x, now
	x.looked = now
	if p.firstTry == 0 {
		p.firstTry = max(now, 1)
	}
	if p.kept.asked() {
		c.giveBack(p, now) // what it would have got
	}
	c.begin(x, now)
	if x.dirty {
		x.resetting = true
		c.do(Action{Kind: ActReset, Context: x})
	}
}

// begin begins a connect: nobody knows of earlier attempts.
func (c *Initiator) begin(x *Context, now time.Duration) {
	x.attempts++
	x.unanswered = 0
	x.Session = Session{Context: int32(x.Index), Attempt: x.attempts, PSN: c.firstPSN(x), heard: now}
	x.pause = c.timeout()
	x.timer = now + x.pause
	c.Retime = true
	c.sendConnect(x)
}

// sendConnect also says which kept session the new one replaces.
func (c *Initiator) sendConnect(x *Context) {
	p := x.peer
	c.send(p.at, wire.Message{Kind: wire.Connect, Epoch: p.epoch, Context: uint32(x.Index), Attempt: x.Session.Attempt,
		Peer: p.Number, PSN: x.Session.PSN, Session: p.kept.ID})
}

// timeout is how long a control message waits for its answer.
func (c *Initiator) timeout() time.Duration { return max(c.estimate(), c.slow) }

func (c *Initiator) estimate() time.Duration { return max(c.Retransmit, c.rtt+4*c.rttVar) }

// longestPause is the bound of the pauses between copies of a message, which double. So
// several are sent before a target is given up: some of them may be lost.
func (c *Initiator) longestPause() time.Duration {
	return min(16*c.estimate(), max(c.Retransmit, c.ConnectTimeout/8))
}

// replied takes the time from a connect packet to its answer. When the packet was sent
// more than once, the answer may be to any copy and measures nothing. But if it did not
// count at all, only answers would that came before the timeout, which then never grows.
// So it is the timeout until one is measured, as a timeout that was backed off is with
// RFC 6298; unless so little time has passed since the last copy that the others have
// been lost, and within bounds.
func (c *Initiator) replied(d, last time.Duration, once bool) {
	switch {
	case once:
		c.measure(d)
	case last > c.rtt+4*c.rttVar:
		c.slow = max(c.slow, min(d, 16*c.estimate(), c.ConnectTimeout/32))
	}
}

// measure takes the time that an answer took.
func (c *Initiator) measure(d time.Duration) {
	c.Retime = true // patience depends on it
	c.slow = 0
	if c.rtt == 0 {
		c.rtt, c.rttVar = d, d/2
		return
	}
	c.rttVar += ((c.rtt - d).Abs() - c.rttVar) / 4
	c.rtt += (d - c.rtt) / 8
}

// patience is how long a target of which nothing was ever heard may hold a context
// that others wait for: about as long as an answer takes. One that comes later is not
// lost, and makes this longer.
func (c *Initiator) patience() time.Duration {
	if c.rtt == 0 {
		return c.timeout()
	}
	return min(max(c.rtt+4*c.rttVar, c.Retransmit/16), c.timeout())
}

// crowded tells whether a target that begins to wait has to. One of which nothing was
// ever heard may then as well be asked meanwhile whether it is there.
func (c *Initiator) crowded() bool { return c.general.n >= c.resets && c.anyEmpty() == nil }

// strange tells whether a context waits for the first answer of a target, and others
// for the context.
func (c *Initiator) strange(x *Context) bool {
	return x.unanswered == 0 && x.peer.strange() && c.wanted(x)
}

// silent: a connect packet has had no answer in time. If others wait, that ends the
// stay of the target in the context, unless it has answered before: then a
// retransmission must stay unanswered, too. It is then asked without a context
// whether it is there.
func (c *Initiator) silent(x *Context, now time.Duration) {
	p := x.peer
	switch {
	case now >= p.firstTry+c.ConnectTimeout, x.unanswered >= 1 && p.Doubtful:
		p.suspect = true
		c.abandon(x, ErrUnreachable, now)
		return
	case x.unanswered >= 1 && c.wanted(x), c.strange(x):
		c.giveWay(x, now)
		return
	}
	c.Stats.Retransmits++
	x.unanswered++
	x.pause = min(2*x.pause, c.longestPause())
	x.timer = now + x.pause
	c.sendConnect(x)
	c.search(p, x.unanswered)
}

// giveWay makes a target that does not answer leave its context. An answer that
// comes yet is as good as a session that was kept.
func (c *Initiator) giveWay(x *Context, now time.Duration) {
	p := x.peer
	c.Stats.GaveWay++
	if p.kept.ID != 0 {
		c.giveBack(p, now)
	}
	p.kept = x.Session
	p.suspect, p.once = true, x.unanswered == 0
	p.probePause = x.pause
	wanted := p.wanted
	pending := p.pending
	p.wanted, p.pending = false, 0 // not in line
	dirty, s := x.release()
	c.leave(x, now)
	p.wanted, p.pending = wanted, pending
	if wanted || pending > 0 {
		c.probe(p, now)
	} else {
		p.firstTry, p.probePause = 0, 0
	}
	c.vacant(x, dirty, s, now)
}

// release is what becomes of the queue pair of a context that has not joined.
func (x *Context) release() (dirty bool, s contextState) {
	if x.resetting {
		return false, resetting
	}
	return x.dirty, free
}

// probe asks a target whether it is there, without a context.
func (c *Initiator) probe(p *Peer, now time.Duration) {
	if p.firstTry == 0 {
		p.firstTry = max(now, 1)
	}
	if p.probePause == 0 {
		p.probePause = c.timeout()
	}
	p.rest = probed
	p.probePause = min(2*p.probePause, c.longestPause())
	c.rests.set(p, min(now+p.probePause, p.firstTry+c.ConnectTimeout))
	c.Retime = true
	c.send(p.at, wire.Message{Kind: wire.Probe, Epoch: p.epoch, Peer: p.Number})
}

// answered: the target is there. Who was waiting for a sign of it goes on.
func (c *Initiator) answered(p *Peer, now time.Duration) {
	p.suspect, p.probePause = false, 0
	if p.rest == probed {
		c.rests.clear(p)
		p.rest, p.firstTry = nowhere, 0
		c.queue(p, now)
	}
}

// withdraw ends a connect; the target waits again if it is still wanted.
func (c *Initiator) withdraw(x *Context, now time.Duration) {
	dirty, s := x.release()
	c.leave(x, now)
	c.vacant(x, dirty, s, now)
}

// vacant: a context has no target any more, and its queue pair need not be reset
// or is being reset.
func (c *Initiator) vacant(x *Context, dirty bool, s contextState, now time.Duration) {
	c.clear(x, s)
	x.dirty, x.looked = dirty, now
	if s == free {
		c.serve(x, now)
	} else {
		c.resets++
	}
}

// abandon gives up a connect.
func (c *Initiator) abandon(x *Context, err error, now time.Duration) {
	c.fail(x.peer, err, now)
	c.withdraw(x, now)
}

// fail ends all requests that wait for a target.
func (c *Initiator) fail(p *Peer, err error, now time.Duration) {
	c.unrest(p)
	p.pending, p.wanted, p.firstTry, p.probePause = 0, false, 0, 0
	c.giveBack(p, now)
	c.do(Action{Kind: ActFail, Peer: p, Err: err})
}

// searchAfter is how many messages must stay unanswered before the target's
// service is asked: one is easily lost.
const searchAfter = 2

// search asks where a target is that does not answer, if it has a service that
// knows. There is one question at a time; unless it helps, the next packet that
// stays unanswered brings another.
func (c *Initiator) search(p *Peer, unanswered int) {
	if unanswered >= searchAfter && p.service && !p.asking {
		p.asking = true
		c.Stats.Lookups++
		c.do(Action{Kind: ActLookup, Peer: p})
	}
}

// Found: the service of a target has answered, or not.
func (c *Initiator) Found(p *Peer, at wire.ControlAddress, err error, now time.Duration) {
	defer c.dispatch(now)
	p.asking = false
	if err != nil || !c.Knows(p) || at.QPN == p.at.QPN && at.QKey == p.at.QKey {
		return
	}
	// It was restarted, and its sessions are gone. One that has a context fails
	// by itself.
	p.at.QPN, p.at.QKey, p.epoch = at.QPN, at.QKey, p.incarnation
	switch x := p.ctx; {
	case x != nil && x.state == connecting:
		c.forget(p)
		c.begin(x, now)
	case p.rest == probed:
		c.forget(p)
		c.probe(p, now)
	case x == nil:
		c.lose(p, now)
	}
}

// Joined: the queue pair of the context is connected, or could not be.
func (c *Initiator) Joined(x *Context, err error, now time.Duration) {
	defer c.dispatch(now)
	p := x.peer
	if err != nil {
		x.broken = true
		c.fail(p, err, now)
		c.detach(x, now)
		return
	}
	x.state, x.since = attached, now
	c.uses++
	x.lastUse = c.uses
	x.timer = x.Session.nextKeepAlive()
	if x.Session.counts && p.pending > 0 {
		x.timer = max(x.timer, now+x.Session.lease()/8) // they have time to tell
	}
	p.wanted, p.firstTry = false, 0
	c.Stats.Attaches++
	p.Stats.Attaches++
	c.Retime = c.Retime || c.due(x) < c.told
	c.do(Action{Kind: ActReady, Peer: p, Context: x})
	c.lined = c.lined || x.empty() // it was asked for without a request, or that was taken back
	if x.moved {
		x.state = draining
		c.settle(x, now)
	}
}
