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
	// stuck: its target has not answered for a while, so that it may be dead.
	stuck  bool
	done   uint32        // requests completed
	seen   uint32        // of those when that was looked at last
	looked time.Duration // when
	answer message       // that came before it was ready; kind 0: none
	line   []*Peer       // that wait for this context

	peer        *Peer
	attempts    uint32 // connects of this context so far
	psn         uint32 // behind all that the queue pair has sent
	departures  departures
	session     session
	outstanding int
	used        int  // requests posted since others wait
	unanswered  int  // connect packets since the target was last heard of
	recalled    bool // the target asked for the responder context
	broken      bool
	since       time.Duration // attached
	lastUse     uint64
	timer       time.Duration // next retransmission, or next sign of life
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
	actSend   actionKind = iota // m to place
	actReset                    // make ctx's queue pair ready again, then call resetDone
	actJoin                     // connect ctx's queue pair to m's responder context, then call joined
	actAbort                    // bring ctx's queue pair to error: what is in it completes
	actReady                    // post what waits for the peer
	actFail                     // fail what waits for the peer
	actLookup                   // ask the peer's service where it is, then call found
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
	parking        Parking // of the device: never, always, or as far as it is safe
}

// initiatorCore decides which context serves which target. It has no clock and
// does no I/O: callers tell it the time, and carry out the actions it leaves.
type initiatorCore struct {
	initiatorLimits
	id       uint64
	contexts []initiatorContext
	peers    []*Peer
	spare    []uint32 // numbers of peers that were forgotten
	waiting  []*Peer  // for whichever context, in order
	goodbyes []farewell
	actions  []action
	random   func() uint32
	uses     uint64 // counts posts, for the least recently used
	parked   int
	stats    Stats
	retime   bool // next has changed, actions or none

	// Of connects that were answered at once (RFC 6298).
	rtt, rttVar time.Duration
}

func newInitiatorCore(id uint64, contexts int, l initiatorLimits, random func() uint32) *initiatorCore {
	c := &initiatorCore{initiatorLimits: l, id: id, contexts: make([]initiatorContext, contexts), random: random}
	for i := range c.contexts {
		c.contexts[i].index = i
		c.contexts[i].psn = random() & 0xffffff
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
	if x.recalled || c.wanted(x) {
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
	if p.ctx != nil {
		return
	}
	p.wanted = true
	c.line(p, now)
	if x := c.home(p); x == nil {
		c.schedule(now)
	} else if x.empty() {
		c.serve(x, now)
	}
}

// home is the context in whose line a target waits, if it is not the general
// one.
func (c *initiatorCore) home(p *Peer) *initiatorContext {
	if p.parked.id != 0 {
		if x := &c.contexts[p.parked.context]; len(x.line) > 0 && x.line[len(x.line)-1] == p {
			return x
		}
	}
	return nil
}

// completed counts n requests of the context that have completed; failed tells
// that the queue pair is in error. If it answers true, settle must follow.
func (c *initiatorCore) completed(x *initiatorContext, n int, failed bool) bool {
	x.outstanding -= n
	x.done += uint32(n)
	if failed && x.state != ctxAborting {
		c.abort(x)
	}
	return x.outstanding == 0 && (x.state != ctxAttached || x.recalled || c.wanted(x))
}

// abort ends a session that failed.
func (c *initiatorCore) abort(x *initiatorContext) {
	x.broken = true
	x.state = ctxAborting
	c.stats.Failures++
	c.do(action{kind: actAbort, ctx: x})
}

// vacate makes a context without outstanding requests leave its target.
func (c *initiatorCore) vacate(x *initiatorContext, now time.Duration) {
	if c.parking == ParkNever || x.broken || x.recalled || now > x.session.parkable() {
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
	*x = initiatorContext{index: x.index, attempts: x.attempts, psn: x.psn, departures: x.departures, state: s, line: x.line}
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
	x.looked = now
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
	to := p.place()
	c.send(to, m)
	c.goodbyes = append(c.goodbyes, farewell{m: m, to: to, timer: now + c.timeout(), pause: 2 * c.timeout()})
}

// forget drops a parked session without telling.
func (c *initiatorCore) forget(p *Peer) {
	if p.parked.id != 0 {
		p.parked = session{}
		c.parked--
	}
}

// lose drops a parked session that the target wants back; its target then waits
// for whichever context.
func (c *initiatorCore) lose(p *Peer, now time.Duration) {
	queued := p.queued
	c.unline(p)
	c.forget(p)
	if queued {
		c.line(p, now)
		c.schedule(now)
	}
}

// leave parts a context and its target.
func (c *initiatorCore) leave(x *initiatorContext, now time.Duration) {
	p := x.peer
	p.ctx, x.peer = nil, nil
	x.retire()
	x.departures.add(p, now)
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
		c.serve(x, now)
	case x.answer.kind != 0:
		c.do(action{kind: actJoin, ctx: x, peer: x.peer, m: x.answer})
		x.answer = message{}
	}
}

// resume takes up a parked session.
func (c *initiatorCore) resume(x *initiatorContext, p *Peer, now time.Duration) {
	x.state, x.peer, p.ctx, x.since = ctxJoining, p, x, now
	x.looked = now
	x.session = p.parked
	c.forget(p)
	c.stats.Resumes++
	m := message{qpn: x.session.qpn, mtu: verbs.MTU(x.session.mtu), from: p.place()}
	c.do(action{kind: actJoin, again: x.dirty, ctx: x, peer: p, m: m})
	x.dirty = false
}

// connect sends the first connect packet of a session.
func (c *initiatorCore) connect(x *initiatorContext, p *Peer, now time.Duration) {
	x.state, x.peer, p.ctx, x.since = ctxConnecting, p, x, now
	x.looked = now
	x.attempts++
	x.session = session{context: int32(x.index), attempt: x.attempts, psn: c.firstPSN(x), heard: now}
	if p.firstTry == 0 {
		p.firstTry = max(now, 1)
		c.stats.Waits++
	}
	x.giveUp = p.firstTry + c.connectTimeout
	x.pause = c.timeout()
	x.timer = now + x.pause
	c.sendConnect(x)
	if x.dirty {
		x.resetting = true
		c.do(action{kind: actReset, ctx: x})
	}
}

// timeout is how long a control message waits for its answer.
func (c *initiatorCore) timeout() time.Duration { return max(c.retransmit, c.rtt+4*c.rttVar) }

// measure takes the time that an answer took.
func (c *initiatorCore) measure(d time.Duration) {
	if c.rtt == 0 {
		c.rtt, c.rttVar = d, d/2
		return
	}
	c.rttVar += ((c.rtt - d).Abs() - c.rttVar) / 4
	c.rtt += (d - c.rtt) / 8
}

// sendConnect also says which parked session the new one replaces.
func (c *initiatorCore) sendConnect(x *initiatorContext) {
	p := x.peer
	c.send(p.place(), message{kind: msgConnect, epoch: p.epoch, key: p.key, context: uint32(x.index), attempt: x.session.attempt,
		peer: p.number, psn: x.session.psn, session: p.parked.id})
}
