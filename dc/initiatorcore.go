package dc

import (
	"time"

	"github.com/goverbs/goverbs/verbs"
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
	index int
	state contextState
	// dirty: the queue pair is still connected to the last target, whose
	// session is parked.
	dirty bool
	// resetting: it is being made ready while the connect packet is under way.
	resetting bool
	answer    message // that came before it was ready; kind 0: none

	peer        *Peer
	attempts    uint32 // connects of this context so far
	session     session
	outstanding int
	used        int  // requests posted since others wait
	recalled    bool // the target asked for the responder context
	broken      bool
	since       time.Duration // attached
	lastUse     uint64
	timer       time.Duration // next retransmission, or next sign of life
	signed      time.Duration // when the last sign of life was sent
	sign        uint32        // its number
	giveUp      time.Duration
	pause       time.Duration // until the next retransmission
}

// session is what a target has assigned to an initiator context. A parked one
// waits, without a queue pair, until the same context serves its target again:
// the responder context keeps its place in the sequence of packets, so that the
// initiator context can go on where it stopped, without asking.
type session struct {
	id      uint64 // 0: none
	context int32
	attempt uint32
	qpn     uint32        // of the responder context
	psn     uint32        // of the next packet to it
	lease   uint32        // milliseconds
	mtu     uint8         // code
	heard   time.Duration // when the last message was sent that the target has answered
}

// parkable is how long after heard a session may be taken up again: the target
// keeps it for the whole lease, and the rest of it is for the next sign of life.
func (s *session) parkable() time.Duration {
	return s.heard + time.Duration(s.lease)*time.Millisecond/2
}

func (s *session) leaseTime() time.Duration { return time.Duration(s.lease) * time.Millisecond }

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
	actReset                   // make ctx's queue pair ready again, then call resetDone
	actJoin                    // connect ctx's queue pair to m's responder context, then call joined
	actAbort                   // bring ctx's queue pair to error: what is in it completes
	actReady                   // post what waits for the peer
	actFail                    // fail what waits for the peer
)

type action struct {
	kind actionKind
	// again: with actJoin, the queue pair has to leave another target before.
	again bool
	ctx   *initiatorContext
	peer  *Peer
	to    place
	m     message
	err   error
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
	peers    []*Peer
	spare    []uint32 // numbers of peers that were forgotten
	waiting  []*Peer  // in order
	goodbyes []farewell
	actions  []action
	random   func() uint32
	uses     uint64 // counts posts, for the least recently used
	signs    uint32 // counts signs of life
	parked   int
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
func (c *initiatorCore) admit(p *Peer) *initiatorContext {
	if x := p.ctx; x != nil && x.state == ctxAttached && p.pending == 0 {
		return x
	}
	return nil
}

// posted counts n requests, of so many packets, that went to the queue pair of
// the context.
func (c *initiatorCore) posted(x *initiatorContext, n, packets int) {
	x.outstanding += n
	x.session.psn = (x.session.psn + uint32(packets)) & 0xffffff
	c.uses++
	x.lastUse = c.uses
	if len(c.waiting) > 0 || x.recalled {
		x.used += n
		if x.used >= c.quota {
			x.state = ctxDraining
		}
	}
}

// enqueue counts n requests that wait for their target; 0 asks for a session
// without any.
func (c *initiatorCore) enqueue(p *Peer, n int, now time.Duration) {
	p.pending += int32(n)
	if p.ctx == nil {
		p.wanted = true
		c.line(p, now)
		c.schedule(now)
	}
}

// line puts a target at the end of those that wait for a context.
func (c *initiatorCore) line(p *Peer, now time.Duration) {
	if !p.queued {
		p.queued, p.impatient, p.lined = true, false, now
		c.waiting = append(c.waiting, p)
	}
}

// home tells whether a target has a parked session that it waits for, or may
// have any context: its own may be stuck with a target that is dead.
func (c *initiatorCore) home(p *Peer, now time.Duration) bool {
	return p.parked.id != 0 && !p.impatient && now <= p.parked.parkable()
}

// completed counts n requests of the context that have completed; failed tells
// that the queue pair is in error. If it answers true, settle must follow.
func (c *initiatorCore) completed(x *initiatorContext, n int, failed bool) bool {
	x.outstanding -= n
	if failed && x.state != ctxAborting {
		c.abort(x)
	}
	return x.outstanding == 0 && (x.state != ctxAttached || x.recalled || len(c.waiting) > 0)
}

// abort ends a session that failed.
func (c *initiatorCore) abort(x *initiatorContext) {
	x.broken = true
	x.state = ctxAborting
	c.stats.Failures++
	c.do(action{kind: actAbort, ctx: x})
}

// settle does what had to wait for the last completion of a context.
func (c *initiatorCore) settle(x *initiatorContext, now time.Duration) {
	if x.outstanding > 0 {
		return
	}
	switch {
	case x.state == ctxDraining, x.state == ctxAborting, x.state == ctxAttached && x.recalled && x.peer.pending == 0:
		c.vacate(x, now)
	}
	c.schedule(now)
}

// vacate makes a context without outstanding requests leave its target.
func (c *initiatorCore) vacate(x *initiatorContext, now time.Duration) {
	if x.broken || x.recalled || now > x.session.parkable() {
		c.detach(x, now)
		return
	}
	x.peer.parked = x.session
	c.parked++
	c.leave(x, now)
	c.clear(x, ctxFree)
	x.dirty = true
}

// clear makes a context forget its session.
func (c *initiatorCore) clear(x *initiatorContext, s contextState) {
	*x = initiatorContext{index: x.index, attempts: x.attempts, state: s}
}

// detach closes the session of a context without outstanding requests.
func (c *initiatorCore) detach(x *initiatorContext, now time.Duration) {
	why := noReason
	if x.broken {
		why = broken
	}
	c.farewell(x.peer, &x.session, why, now)
	c.leave(x, now)
	c.clear(x, ctxResetting)
	c.do(action{kind: actReset, ctx: x})
}

// dismiss closes the session with a target, or answers false if there is
// something under way.
func (c *initiatorCore) dismiss(p *Peer, now time.Duration) bool {
	if p.pending > 0 || p.wanted {
		return false
	}
	if x := p.ctx; x != nil {
		if x.state != ctxAttached || x.outstanding > 0 {
			return false
		}
		c.detach(x, now)
		c.schedule(now)
	}
	if p.parked.id != 0 {
		c.farewell(p, &p.parked, noReason, now)
		c.forget(p)
	}
	return true
}

// farewell tells a target that a session is over, until it answers.
func (c *initiatorCore) farewell(p *Peer, s *session, why reason, now time.Duration) {
	m := message{kind: msgDetach, reason: why, session: s.id, context: uint32(s.context), attempt: s.attempt, peer: p.number, epoch: p.epoch}
	to := p.addr.place()
	c.send(to, m)
	c.goodbyes = append(c.goodbyes, farewell{m: m, to: to, timer: now + c.retransmit, pause: 2 * c.retransmit})
}

// forget drops a parked session without telling.
func (c *initiatorCore) forget(p *Peer) {
	if p.parked.id != 0 {
		p.parked = session{}
		c.parked--
	}
}

// leave parts a context and its target.
func (c *initiatorCore) leave(x *initiatorContext, now time.Duration) {
	p := x.peer
	p.ctx, x.peer = nil, nil
	if p.pending > 0 || p.wanted {
		c.line(p, now)
	}
}

// resetDone: the queue pair can be connected again.
func (c *initiatorCore) resetDone(x *initiatorContext, now time.Duration) {
	x.resetting, x.dirty = false, false
	switch {
	case x.state == ctxResetting:
		c.clear(x, ctxFree)
		c.schedule(now)
	case x.answer.kind != 0:
		c.do(action{kind: actJoin, ctx: x, peer: x.peer, m: x.answer})
		x.answer = message{}
	}
}

// schedule gives contexts to targets that wait, the longest waiting first. One
// with a parked session gets the context that it belongs to.
func (c *initiatorCore) schedule(now time.Duration) {
	keep := c.waiting[:0]
	for _, p := range c.waiting {
		if p.pending == 0 && !p.wanted {
			p.queued = false
			continue
		}
		var x *initiatorContext
		switch {
		case p.notBefore > now:
		case c.home(p, now):
			x = c.empty(&c.contexts[p.parked.context])
		default:
			x = c.any()
		}
		if x == nil {
			keep = append(keep, p)
			continue
		}
		p.queued = false
		if x.state == ctxAttached {
			c.stats.Evictions++
			c.vacate(x, now)
			if x.state != ctxFree {
				// It is being reset: the next in line is served then.
				p.queued = true
				keep = append(keep, p)
				continue
			}
		}
		if p.parked.id != 0 && int(p.parked.context) == x.index && now <= p.parked.parkable() {
			c.resume(x, p)
		} else {
			c.connect(x, p, now)
		}
	}
	clear(c.waiting[len(keep):])
	c.waiting = keep
	if len(keep) > 0 {
		c.yield(now)
	}
}

// empty is x if nothing needs it.
func (c *initiatorCore) empty(x *initiatorContext) *initiatorContext {
	if x.state == ctxFree && !x.resetting || x.state == ctxAttached && x.outstanding == 0 && x.peer.pending == 0 && !x.peer.wanted {
		return x
	}
	return nil
}

// any is a context that nothing needs, if there is one: a free one, or the least
// recently used.
func (c *initiatorCore) any() *initiatorContext {
	var best *initiatorContext
	for i := range c.contexts {
		x := c.empty(&c.contexts[i])
		switch {
		case x == nil:
		case x.state == ctxFree && !x.dirty:
			return x
		case best == nil, x.state == ctxFree && best.state != ctxFree, x.state == best.state && x.lastUse < best.lastUse:
			best = x
		}
	}
	return best
}

// yield makes contexts that have had their turn leave their targets as soon as
// they are empty: those that targets wait for, and others as far as needed.
func (c *initiatorCore) yield(now time.Duration) {
	need := 0
	for _, p := range c.waiting {
		if p.notBefore > now {
			continue
		}
		if c.home(p, now) {
			c.drain(&c.contexts[p.parked.context])
		} else {
			need++
		}
	}
	for i := range c.contexts {
		switch c.contexts[i].state {
		case ctxDraining, ctxAborting, ctxResetting:
			need--
		}
	}
	for i := 0; i < len(c.contexts) && need > 0; i++ {
		if c.drain(&c.contexts[i]) {
			need--
		}
	}
}

// drain lets a busy context take no more requests if it has had its turn.
func (c *initiatorCore) drain(x *initiatorContext) bool {
	if x.state != ctxAttached || x.used < c.quota || x.outstanding == 0 {
		return false
	}
	x.state = ctxDraining
	return true
}

// resume takes up a parked session.
func (c *initiatorCore) resume(x *initiatorContext, p *Peer) {
	x.state, x.peer, p.ctx = ctxJoining, p, x
	x.session = p.parked
	c.forget(p)
	c.stats.Resumes++
	m := message{qpn: x.session.qpn, mtu: verbs.MTU(x.session.mtu), from: p.addr.place()}
	c.do(action{kind: actJoin, again: x.dirty, ctx: x, peer: p, m: m})
	x.dirty = false
}

// connect sends the first connect packet of a session.
func (c *initiatorCore) connect(x *initiatorContext, p *Peer, now time.Duration) {
	x.state, x.peer, p.ctx = ctxConnecting, p, x
	x.attempts++
	x.session = session{context: int32(x.index), attempt: x.attempts, psn: c.random() & 0xffffff, heard: now}
	if p.firstTry == 0 {
		p.firstTry = max(now, 1)
		c.stats.Waits++
	}
	x.giveUp = p.firstTry + c.connectTimeout
	x.pause = c.retransmit
	x.timer = now + x.pause
	c.sendConnect(x)
	if x.dirty {
		x.resetting = true
		c.do(action{kind: actReset, ctx: x})
	}
}

// sendConnect also says which parked session the new one replaces.
func (c *initiatorCore) sendConnect(x *initiatorContext) {
	p := x.peer
	c.send(p.addr.place(), message{kind: msgConnect, epoch: p.epoch, key: p.key, context: uint32(x.index), attempt: x.session.attempt,
		peer: p.number, psn: x.session.psn, session: p.parked.id})
}
