package dc

import (
	"slices"
	"time"
)

// contextState is how far an initiator context is with its session.
type contextState uint8

const (
	ctxFree       contextState = iota
	ctxConnecting              // connect packet sent
	ctxJoining                 // answered; the queue pair is being connected
	ctxAttached
	ctxDraining  // attached, but takes no more requests
	ctxAborting  // failed; waits until everything in it is flushed
	ctxResetting // the queue pair is being made ready for the next session
)

// initiatorContext is the patent's DC initiator context: one queue pair, which
// serves one target after another.
type initiatorContext struct {
	index       int
	state       contextState
	peer        *peerState
	attempt     uint32
	session     uint64
	outstanding int
	used        int  // requests posted since others wait
	recalled    bool // the target asked for the responder context
	broken      bool
	psn         uint32
	since       time.Duration // attached
	lastUse     time.Duration
	timer       time.Duration // next retransmission, or next sign of life
	giveUp      time.Duration
	pause       time.Duration // until the next retransmission
	lease       time.Duration
}

// peerState is what the initiator knows of a target.
type peerState struct {
	number    uint32
	to        place
	key       uint64
	epoch     uint64
	pending   int // requests not yet posted
	ctx       *initiatorContext
	queued    bool
	gone      bool
	notBefore time.Duration // after a busy answer
	firstTry  time.Duration // of the connects under way; 0: none
}

// farewell is a detach that was not yet acknowledged.
type farewell struct {
	m     message
	to    place
	timer time.Duration
	pause time.Duration
	tries int
}

type actionKind uint8

const (
	actSend  actionKind = iota // m to place
	actJoin                    // connect ctx's queue pair to m's responder context, then call joined
	actReset                   // make ctx's queue pair ready again, then call resetDone
	actAbort                   // bring ctx's queue pair to error: what is in it completes
	actReady                   // post what waits for the peer
	actFail                    // fail what waits for the peer
)

type action struct {
	kind actionKind
	ctx  *initiatorContext
	peer *peerState
	to   place
	m    message
	err  error
}

type initiatorLimits struct {
	quota          int
	hold           time.Duration // starvation bound
	retransmit     time.Duration
	connectTimeout time.Duration
}

// initiatorCore decides which context serves which target. It has no clock and
// does no I/O: callers tell it the time, and carry out the actions it leaves.
type initiatorCore struct {
	initiatorLimits
	id       uint64
	contexts []initiatorContext
	peers    []*peerState
	spare    []uint32     // numbers of peers that were forgotten
	waiting  []*peerState // in order
	goodbyes []farewell
	actions  []action
	random   func() uint32
	stats    Stats
}

func newInitiatorCore(id uint64, contexts int, l initiatorLimits, random func() uint32) *initiatorCore {
	c := &initiatorCore{initiatorLimits: l, id: id, contexts: make([]initiatorContext, contexts), random: random}
	for i := range c.contexts {
		c.contexts[i].index = i
	}
	return c
}

func (c *initiatorCore) do(a action) { c.actions = append(c.actions, a) }

func (c *initiatorCore) send(to place, m message) {
	m.sender = c.id
	c.do(action{kind: actSend, to: to, m: m})
}

// admit tells whether a request may be posted at once; if so the caller posts
// it and calls posted. If not, the caller keeps it and calls enqueue.
func (c *initiatorCore) admit(p *peerState) *initiatorContext {
	if x := p.ctx; x != nil && x.state == ctxAttached && p.pending == 0 {
		return x
	}
	return nil
}

// posted counts n requests that went to the queue pair of the context.
func (c *initiatorCore) posted(x *initiatorContext, n int, now time.Duration) {
	x.outstanding += n
	x.lastUse = now
	if len(c.waiting) > 0 || x.recalled {
		x.used += n
		if x.used >= c.quota {
			x.state = ctxDraining
		}
	}
}

// enqueue counts n requests that wait for their target.
func (c *initiatorCore) enqueue(p *peerState, n int, now time.Duration) {
	p.pending += n
	if p.ctx == nil {
		c.line(p)
		c.schedule(now)
	}
}

// line puts a target at the end of those that wait for a context.
func (c *initiatorCore) line(p *peerState) {
	if !p.queued {
		p.queued = true
		c.waiting = append(c.waiting, p)
	}
}

// completed counts n requests of the context that have completed; failed tells
// that the queue pair is in error.
func (c *initiatorCore) completed(x *initiatorContext, n int, failed bool, now time.Duration) {
	x.outstanding -= n
	if failed && x.state != ctxAborting {
		x.broken = true
		x.state = ctxAborting
		c.stats.Failures++
		c.do(action{kind: actAbort, ctx: x})
	}
	if x.outstanding > 0 {
		return
	}
	switch {
	case x.state == ctxDraining, x.state == ctxAborting:
		c.detach(x, now)
	case x.state == ctxAttached && x.recalled && x.peer.pending == 0:
		c.detach(x, now)
	}
	c.schedule(now)
}

// detach closes the session of a context without outstanding requests.
func (c *initiatorCore) detach(x *initiatorContext, now time.Duration) {
	p := x.peer
	m := message{kind: msgDetach, session: x.session, context: uint32(x.index), attempt: x.attempt, peer: p.number, epoch: p.epoch}
	if x.broken {
		m.reason = broken
	}
	c.send(p.to, m)
	c.goodbyes = append(c.goodbyes, farewell{m: m, to: p.to, timer: now + c.retransmit, pause: 2 * c.retransmit})
	c.leave(x)
	x.state = ctxResetting
	c.do(action{kind: actReset, ctx: x})
}

// leave parts a context and its target.
func (c *initiatorCore) leave(x *initiatorContext) {
	p := x.peer
	p.ctx, x.peer = nil, nil
	if p.pending > 0 {
		c.line(p)
	}
}

// resetDone: the queue pair can be connected again.
func (c *initiatorCore) resetDone(x *initiatorContext, now time.Duration) {
	*x = initiatorContext{index: x.index, attempt: x.attempt}
	c.schedule(now)
}

// eligible is the first target that waits and may connect now, or -1.
func (c *initiatorCore) eligible(now time.Duration) int {
	for i, p := range c.waiting {
		if p.notBefore <= now {
			return i
		}
	}
	return -1
}

// schedule gives contexts to targets that wait.
func (c *initiatorCore) schedule(now time.Duration) {
	for {
		i := c.eligible(now)
		if i < 0 {
			return
		}
		x := c.free()
		if x == nil {
			c.yield(now)
			return
		}
		p := c.waiting[i]
		c.waiting = slices.Delete(c.waiting, i, i+1)
		p.queued = false
		if p.pending > 0 {
			c.connect(x, p, now)
		}
	}
}

func (c *initiatorCore) free() *initiatorContext {
	for i := range c.contexts {
		if c.contexts[i].state == ctxFree {
			return &c.contexts[i]
		}
	}
	return nil
}

// yield makes contexts leave their targets, as many as there are targets that
// wait: idle ones at once, the least recently used first, and those that have
// had their turn as soon as they are empty.
func (c *initiatorCore) yield(now time.Duration) {
	coming := 0
	var idle *initiatorContext
	for i := range c.contexts {
		x := &c.contexts[i]
		switch x.state {
		case ctxDraining, ctxAborting, ctxResetting:
			coming++
		case ctxAttached:
			if x.outstanding == 0 && x.peer.pending == 0 && (idle == nil || x.lastUse < idle.lastUse) {
				idle = x
			}
		}
	}
	if coming >= len(c.waiting) {
		return
	}
	if idle != nil {
		c.stats.Evictions++
		c.detach(idle, now)
		return
	}
	for i := range c.contexts {
		if x := &c.contexts[i]; x.state == ctxAttached && x.used >= c.quota {
			x.state = ctxDraining
			if x.outstanding == 0 {
				c.detach(x, now)
			}
			return
		}
	}
}

// connect sends the first connect packet of a session.
func (c *initiatorCore) connect(x *initiatorContext, p *peerState, now time.Duration) {
	x.state, x.peer, p.ctx = ctxConnecting, p, x
	x.attempt++
	x.psn = c.random() & 0xffffff
	if p.firstTry == 0 {
		p.firstTry = max(now, 1)
		c.stats.Waits++
	}
	x.giveUp = p.firstTry + c.connectTimeout
	x.pause = c.retransmit
	x.timer = now + x.pause
	c.sendConnect(x)
}

func (c *initiatorCore) sendConnect(x *initiatorContext) {
	p := x.peer
	c.send(p.to, message{kind: msgConnect, epoch: p.epoch, key: p.key, context: uint32(x.index), attempt: x.attempt, peer: p.number, psn: x.psn})
}

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
	current := x.peer == p && x.attempt == m.attempt
	if m.from.gid != p.to.gid || m.from.qpn != p.to.qpn {
		c.stats.Rubbish++
		return
	}
	switch m.kind {
	case msgAttached:
		c.attached(x, p, current, m, now)
	case msgBusy:
		c.busy(x, p, current, m, now)
	case msgRefuse:
		c.refused(x, p, current, m, now)
	case msgDetached:
		c.goodbyes = slices.DeleteFunc(c.goodbyes, func(f farewell) bool { return f.m.session == m.session && f.to == p.to })
	case msgRecall:
		if current && m.session == x.session && (x.state == ctxAttached) {
			x.recalled = true
			if x.outstanding == 0 && p.pending == 0 || x.used >= c.quota {
				x.state = ctxDraining
				if x.outstanding == 0 {
					c.detach(x, now)
				}
			}
		}
	default:
		c.stats.Rubbish++
	}
}

func (c *initiatorCore) attached(x *initiatorContext, p *peerState, current bool, m *message, now time.Duration) {
	switch {
	case current && x.state == ctxConnecting:
		x.state, x.session = ctxJoining, m.session
		x.lease = time.Duration(m.wait) * time.Millisecond
		p.epoch, p.firstTry = m.epoch, 0
		c.do(action{kind: actJoin, ctx: x, peer: p, m: *m})
	case current && m.session == x.session:
		// A copy.
	default:
		// The answer to a connect that nobody waits for any more.
		c.stats.Stale++
		c.send(p.to, message{kind: msgDetach, epoch: m.epoch, session: m.session, context: m.context, attempt: m.attempt, peer: m.peer})
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
	x.state, x.since, x.lastUse = ctxAttached, now, now
	x.timer = now + x.lease/4
	c.stats.Attaches++
	c.do(action{kind: actReady, peer: p, ctx: x})
}

func (c *initiatorCore) busy(x *initiatorContext, p *peerState, current bool, m *message, now time.Duration) {
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
	c.leave(x)
	p.firstTry = 0 // it is alive: wait for its turn
	// Not all at the same time.
	p.notBefore = now + wait/2 + time.Duration(c.random()%1024)*wait/1024
	x.state = ctxFree
	c.schedule(now)
}

func (c *initiatorCore) refused(x *initiatorContext, p *peerState, current bool, m *message, now time.Duration) {
	switch {
	case !current:
		c.stats.Stale++
	case m.reason == staleSession && m.session == x.session && (x.state == ctxAttached || x.state == ctxDraining):
		x.broken, x.state = true, ctxAborting
		c.stats.Failures++
		if x.outstanding == 0 {
			c.detach(x, now)
			c.schedule(now)
		} else {
			c.do(action{kind: actAbort, ctx: x})
		}
	case x.state != ctxConnecting:
		c.stats.Stale++
	case m.reason == staleTarget && m.epoch != p.epoch:
		// Another target has the address now: what is not posted goes there.
		p.epoch = m.epoch
		x.attempt++
		c.sendConnect(x)
	default:
		err := ErrRefused
		if m.reason == badKey {
			err = ErrAccessKey
		}
		c.abandon(x, err, now)
	}
}

// abandon gives up a connect.
func (c *initiatorCore) abandon(x *initiatorContext, err error, now time.Duration) {
	p := x.peer
	c.fail(p, err)
	c.leave(x)
	x.state = ctxFree
	c.schedule(now)
}

// fail ends all requests that wait for a target.
func (c *initiatorCore) fail(p *peerState, err error) {
	p.pending, p.firstTry, p.notBefore = 0, 0, 0
	if p.queued {
		p.queued = false
		c.waiting = slices.DeleteFunc(c.waiting, func(q *peerState) bool { return q == p })
	}
	c.do(action{kind: actFail, peer: p, err: err})
}

// never is when nothing is to be done.
const never = time.Duration(1<<63 - 1)

// next is when tick should be called.
func (c *initiatorCore) next() time.Duration {
	t := never
	for i := range c.contexts {
		x := &c.contexts[i]
		switch x.state {
		case ctxConnecting:
			t = min(t, x.timer, x.giveUp)
		case ctxAttached, ctxDraining:
			if x.lease > 0 {
				t = min(t, x.timer)
			}
			if len(c.waiting) > 0 && x.state == ctxAttached && x.used < c.quota {
				t = min(t, x.since+c.hold)
			}
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
	for i := range c.contexts {
		x := &c.contexts[i]
		if x.state == ctxAttached && len(c.waiting) > 0 && now-x.since >= c.hold {
			x.used = c.quota // it has had its turn
		}
		switch {
		case x.state == ctxConnecting && now >= x.giveUp:
			c.abandon(x, ErrUnreachable, now)
		case x.state == ctxConnecting && now >= x.timer:
			c.stats.Retransmits++
			x.pause = min(2*x.pause, 16*c.retransmit)
			x.timer = now + x.pause
			c.sendConnect(x)
		case (x.state == ctxAttached || x.state == ctxDraining) && x.lease > 0 && now >= x.timer:
			x.timer = now + x.lease/4
			c.send(x.peer.to, message{kind: msgEstablished, epoch: x.peer.epoch, session: x.session, context: uint32(x.index), attempt: x.attempt, peer: x.peer.number})
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
