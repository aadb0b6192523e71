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
	p.kept = Session{}
	c.Stats.Resumes++
	p.Stats.Resumes++
	m := wire.Message{QPN: x.Session.QPN, MTU: x.Session.MTU, From: p.at}
	c.do(Action{Kind: ActJoin, Again: x.dirty, Context: x, Peer: p, Message: m})
}

// connect sends the first connect packet of a session.
func (c *Initiator) connect(x *Context, p *Peer, now time.Duration) {
	x.state, x.peer, p.ctx, x.since = connecting, p, x, now
	x.looked = now
	p.try(now)
	c.begin(x, now)
	if x.dirty {
		x.resetting = true
		c.do(Action{Kind: ActReset, Context: x})
	}
}

// begin begins a connect: earlier attempts are unknown to the target.
func (c *Initiator) begin(x *Context, now time.Duration) {
	x.attempts++
	x.unanswered = 0
	x.Session = Session{Context: int32(x.Index), Attempt: x.attempts, PSN: c.firstPSN(x), heard: now}
	x.pause = c.timeout()
	x.timer = now + x.pause
	c.Retime = true
	c.sendConnect(x)
}

// sendConnect sends a connect packet, which also names the kept session that the new one replaces.
func (c *Initiator) sendConnect(x *Context) {
	p := x.peer
	c.send(p, wire.Message{Kind: wire.Connect, Context: uint32(x.Index), Attempt: x.Session.Attempt, PSN: x.Session.PSN, Session: p.kept.ID})
}

// timeout returns how long a control message waits for its reply, before it is sent again.
func (c *Initiator) timeout() time.Duration {
	return min(max(c.Retransmit, c.rtt.Timeout()), c.longestPause())
}

// longestPause bounds the pauses between copies of a message, which double. So several
// are sent before a target is given up: some of them may be lost.
func (c *Initiator) longestPause() time.Duration { return max(c.Retransmit, c.ConnectTimeout/8) }

// silent handles a connect packet without a reply in time. If others wait for the context, a
// target that does not reply to the repetition either leaves it to them.
func (c *Initiator) silent(x *Context, now time.Duration) {
	p := x.peer
	switch {
	case now >= p.firstTry+c.ConnectTimeout:
		p.alive = false
		c.fail(p, ErrUnreachable, now)
		c.leave(x, now)
		c.vacant(x, now)
		return
	case x.unanswered >= 1 && c.wanted(x):
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

// giveWay makes a target that does not reply leave its context.
func (c *Initiator) giveWay(x *Context, now time.Duration) {
	p := x.peer
	c.Stats.GaveWay++
	c.giveBack(p, now) // what the connect packet replaces
	c.disconnect(p, &x.Session, wire.NoReason, now)
	p.alive = false
	c.unlink(x, now)
	if p.wanted || p.pending > 0 {
		c.probe(p, now)
	} else {
		p.firstTry = 0
	}
	c.vacant(x, now)
}

// try notes when the first of the connects and probes without a reply was sent.
func (p *Peer) try(now time.Duration) {
	if p.firstTry == 0 {
		p.firstTry, p.probePause = max(now, 1), 0
	}
}

// probe asks a target whether it is there, without a context.
func (c *Initiator) probe(p *Peer, now time.Duration) {
	p.try(now)
	p.rest = probed
	p.probePause = min(max(2*p.probePause, c.timeout()), c.longestPause())
	c.rests.set(p, min(now+p.probePause, p.firstTry+c.ConnectTimeout))
	c.Retime = true
	c.send(p, wire.Message{Kind: wire.Probe, Wait: uint32(now / time.Millisecond)})
}

// replied records that the target is there. If it was asked, it waits for a context.
func (c *Initiator) replied(p *Peer, now time.Duration) {
	p.alive = true
	if p.rest == probed {
		c.rests.clear(p)
		p.firstTry = 0
		c.queue(p, now)
	}
}

// vacant: a context that has not joined has no target any more. Its queue pair need not
// be reset, or is being reset.
func (c *Initiator) vacant(x *Context, now time.Duration) {
	if x.resetting {
		x.stay = stay{state: resetting, looked: now}
		c.resets++
		return
	}
	x.stay = stay{state: free, dirty: x.dirty, looked: now}
	c.serve(x, now)
}

// fail ends all requests that wait for a target.
func (c *Initiator) fail(p *Peer, err error, now time.Duration) {
	c.unrest(p)
	p.pending, p.wanted, p.firstTry = 0, false, 0
	c.giveBack(p, now)
	c.do(Action{Kind: ActFail, Peer: p, Err: err})
}

// searchAfter is how many messages must stay without a reply before the target's
// service is asked: one is easily lost.
const searchAfter = 2

// search asks where a target is that does not reply, if it has a service that
// knows. There is one question at a time; unless it helps, the next packet without
// a reply brings another.
func (c *Initiator) search(p *Peer, unanswered int) {
	if unanswered >= searchAfter && p.service && !p.asking {
		p.asking = true
		c.Stats.Lookups++
		c.do(Action{Kind: ActLookup, Peer: p})
	}
}

// Found takes the reply of a target's service, or the error of asking it.
func (c *Initiator) Found(p *Peer, at wire.ControlAddress, err error, now time.Duration) {
	defer c.dispatch(now)
	p.asking = false
	if err != nil || !c.Knows(p) || at.QPN == p.at.QPN && at.QKey == p.at.QKey {
		return
	}
	// It was restarted, and its sessions are gone. One that has a context fails
	// by itself.
	p.at.QPN, p.at.QKey, p.epoch = at.QPN, at.QKey, p.generation
	switch x := p.ctx; {
	case x != nil && x.state == connecting:
		p.kept = Session{}
		c.begin(x, now)
	case p.rest == probed:
		p.kept = Session{}
		c.probe(p, now)
	default:
		c.lose(p, now)
	}
}

// Joined takes the result of connecting the queue pair of the context.
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
	c.use(x)
	x.timer = x.Session.nextKeepAlive()
	if x.Session.counts && p.pending > 0 {
		x.timer = max(x.timer, now+x.Session.lease()/8) // they have time to tell
	}
	p.wanted, p.firstTry = false, 0
	c.Stats.Attaches++
	p.Stats.Attaches++
	c.Retime = c.Retime || c.due(x) < c.told
	c.do(Action{Kind: ActReady, Peer: p, Context: x})
	c.lined = x.empty() // it was asked for without a request, or that was taken back
	if x.moved {
		x.state = draining
		c.settle(x, now)
	}
}
