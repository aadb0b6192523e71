package session

import (
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/internal/rtt"
)

// contextState is how far an initiator context is with its session.
type contextState uint8

const (
	free       contextState = iota
	connecting              // connect packet sent
	joining                 // the reply has come; the queue pair is being connected
	attached
	draining  // attached, but takes no more requests
	aborting  // failed; waits until everything in it is flushed
	resetting // the queue pair is being made ready for the next session
	damaged   // that failed, and is tried again
)

// Context is a DC initiator context: one queue pair, which serves one
// target after another.
type Context struct {
	Index int
	stay

	yielded    *Peer  // has just had its turn
	line       line   // of targets with a session of this context
	attempts   uint32 // sessions that it has asked for so far
	psn        uint32 // behind all that the queue pair has sent
	departures departures
	failures   int // to make the queue pair ready, in a row
	lastUse    uint64
}

// stay is the time of a context with one target, or without any.
type stay struct {
	Session Session

	state contextState
	// dirty: the context has left its last target, with a session that is kept, and the
	// queue pair is still connected to it.
	dirty bool
	// resetting: it is being made ready while the connect packet is under way.
	resetting bool
	// stuck: its target has not replied for a while, so that it may be dead.
	stuck    bool
	recalled bool // the target asked for the responder context
	broken   bool
	moved    bool // its queue pair was connected from a place that the local address has left
	notReady bool // a request found no receive at the target

	peer        *Peer
	done        uint32        // requests completed
	seen        uint32        // of those when that was looked at last
	looked      time.Duration // when
	answer      wire.Message  // that came before it was ready; kind 0: none
	outstanding int
	used        int           // requests posted since others wait
	unanswered  int           // connect packets since the target was last heard of
	since       time.Duration // attached
	timer       time.Duration // next retransmission, keep-alive, or try to repair
	pause       time.Duration // until the next retransmission
}

// Peer returns the target that the context serves, or nil.
func (x *Context) Peer() *Peer { return x.peer }

// Attached reports whether the context takes requests.
func (x *Context) Attached() bool { return x.state == attached }

// Live reports whether the context has a session.
func (x *Context) Live() bool {
	return x.state == attached || x.state == draining || x.state == aborting
}

// disconnect is a Detach without a reply so far.
type disconnect struct {
	m     wire.Message
	to    wire.ControlAddress
	timer time.Duration
	pause time.Duration
	tries int
}

// ActionKind is what the driver is asked for.
type ActionKind uint8

const (
	ActSend   ActionKind = iota // Message to To
	ActReset                    // make Context's queue pair ready again, then call ResetDone
	ActJoin                     // connect Context's queue pair to Message's responder context, then call Joined
	ActAbort                    // bring Context's queue pair to error: what is in it completes
	ActReady                    // post what waits for the peer
	ActFail                     // fail what waits for the peer
	ActLookup                   // ask the peer's service where it is, then call Found
	ActLost                     // the session of the peer was lost, for Err or because a request of Context failed
)

// Action is what the driver is asked for. ActAbort, ActReady, ActFail and ActLost
// must be carried out before the next call of the machine.
type Action struct {
	Kind ActionKind
	// Again: with ActJoin, the queue pair has to leave another target before; with
	// ActReset, it could not be reset, and should be replaced.
	Again   bool
	Context *Context
	Peer    *Peer
	To      wire.ControlAddress
	Message wire.Message
	Err     error
}

// Limits of an initiator.
type Limits struct {
	Quota          int           // requests that a context posts while others wait
	Hold           time.Duration // the same in time
	MaxWait        time.Duration // after which a waiting target comes before larger backlogs
	Retransmit     time.Duration // least pause before a control message is repeated
	ConnectTimeout time.Duration
	Keep           bool          // sessions are kept when their context leaves the target, and not closed
	TimeWait       time.Duration // no packet is under way for longer
}

// Stats are dc.Stats.
type Stats struct {
	Attaches, Resumes, Hits, Evictions, Busy, NotReady, Waits uint64
	GaveWay, Failures, Retransmits, Lookups, Malformed        uint64
	Waited                                                    time.Duration
	Live, Kept, Waiting                                       int
}

// Initiator decides which context serves which target.
type Initiator struct {
	Limits
	ID       uint64
	Contexts []Context
	Actions  []Action
	Stats    Stats
	// Retime: something is due sooner than Next has said.
	Retime bool

	peers       []*Peer
	spare       []uint32 // numbers of peers that were removed
	general     line     // of targets that any context can serve
	rests       timers
	disconnects []disconnect
	random      func() uint32
	uses        uint64 // counts posts, for the least recently used
	waiting     int
	resets      int           // contexts in state resetting
	lined       bool          // a target has begun to wait: dispatch looks
	told        time.Duration // what Next has said

	gone map[uint32]keyedAddress // of removed peers, by their numbers

	rtt rtt.Estimate // of connect packets that were sent once and their replies, and of probes
}

// NewInitiator makes a machine; id distinguishes it from all others.
func NewInitiator(id uint64, contexts int, l Limits, random func() uint32) *Initiator {
	c := &Initiator{Limits: l, ID: id, Contexts: make([]Context, contexts), random: random, gone: make(map[uint32]keyedAddress)}
	for i := range c.Contexts {
		c.Contexts[i].Index = i
		c.Contexts[i].psn = random() & 0xffffff
	}
	return c
}

func (c *Initiator) do(a Action) { c.Actions = append(c.Actions, a) }

// send sends a message to a target.
func (c *Initiator) send(p *Peer, m wire.Message) {
	m.Sender, m.Key, m.Peer, m.Epoch = c.ID, p.key, p.Number, p.epoch
	c.do(Action{Kind: ActSend, To: p.at, Message: m})
}

// keyedAddress is what it takes to tell a target something.
type keyedAddress struct {
	at  wire.ControlAddress
	key uint64
}

func (p *Peer) address() keyedAddress { return keyedAddress{p.at, p.key} }

// Counted returns the statistics so far.
func (c *Initiator) Counted() Stats {
	s := c.Stats
	for k := range c.Contexts {
		if c.Contexts[k].Live() {
			s.Live++
		}
	}
	for _, p := range c.peers {
		if p != nil && p.kept.ID != 0 {
			s.Kept++
		}
	}
	s.Waiting = c.waiting
	return s
}

// Admit returns the context in which a request may be posted at once; the caller posts it
// and calls Posted. If there is none, the caller keeps it and calls Enqueue.
func (c *Initiator) Admit(p *Peer) *Context {
	if x := p.ctx; x != nil && x.state == attached && p.pending == 0 {
		return x
	}
	return nil
}

// Posted counts n requests, of so many packets, that went to the queue pair of
// the context.
func (c *Initiator) Posted(x *Context, n, packets int) {
	first := x.outstanding == 0
	x.outstanding += n
	x.number(packets)
	c.use(x)
	if x.recalled || c.wanted(x) {
		x.used += n
		if x.used >= c.Quota {
			x.state = draining
		}
		c.Retime = c.Retime || first && c.due(x) < c.told
	}
}

// use makes a context the most recently used one.
func (c *Initiator) use(x *Context) {
	c.uses++
	x.lastUse = c.uses
}

// Allow returns how many of n requests may be posted to a context that has place for
// so many.
func (c *Initiator) Allow(x *Context, n, place int) int {
	if x.state != attached {
		return 0
	}
	if n = min(n, place); x.recalled || c.wanted(x) {
		n = min(n, c.Quota-x.used)
	}
	return n
}

// Room is [Initiator.Allow] for the requests that wait for the context's target.
func (c *Initiator) Room(x *Context, place int) int {
	if x.state != attached {
		return 0
	}
	return c.Allow(x, int(x.peer.pending), place)
}

// Abort breaks off the session of a target, if there is one.
func (c *Initiator) Abort(p *Peer) {
	if x := p.ctx; x != nil && x.outstanding > 0 && (x.state == attached || x.state == draining) {
		c.abort(x, ErrAborted)
	}
}

// Took counts requests that waited and are about to be posted.
func (c *Initiator) Took(p *Peer, n int) { p.pending -= int32(n) }

// Enqueue counts n requests that wait for their target; 0 asks for a session
// without any.
func (c *Initiator) Enqueue(p *Peer, n int, now time.Duration) {
	p.pending += int32(n)
	switch {
	case p.ctx != nil:
		if n == 0 && p.ctx.state == attached {
			c.do(Action{Kind: ActReady, Peer: p, Context: p.ctx})
			return
		}
		if n == 0 {
			p.wanted = true
		}
		return
	case c.hopeless():
		c.fail(p, ErrNoContexts, now)
		return
	}
	p.wanted = p.wanted || n == 0
	switch {
	case p.rest == inLine:
		p.line.changed(p)
	case p.rest != nowhere:
	case !p.alive:
		c.probe(p, now)
	default:
		c.queue(p, now)
	}
}

// Withdraw takes back n requests that wait, and the wish for a session if
// attach says so.
func (c *Initiator) Withdraw(p *Peer, n int, attach bool) {
	p.pending -= int32(n)
	if attach {
		p.wanted = false
	}
	switch {
	case p.rest == inLine && p.pending == 0 && !p.wanted:
		c.unline(p)
	case p.rest == inLine:
		p.line.changed(p)
	case p.rest != nowhere && p.pending == 0 && !p.wanted:
		c.unrest(p)
		p.firstTry = 0
	}
}

// Completed counts n requests of the context that have completed; failed says
// that the queue pair is in error.
func (c *Initiator) Completed(x *Context, n int, failed bool, now time.Duration) {
	if c.Done(x, n, failed) {
		c.Settle(x, now)
	}
}

// Done is Completed for callers that do not know the time: if it returns true, Settle
// must follow.
func (c *Initiator) Done(x *Context, n int, failed bool) bool {
	x.outstanding -= n
	x.done += uint32(n)
	if failed && x.state != aborting {
		c.abort(x, nil)
	} else if !failed && x.peer != nil {
		x.peer.notReady = 0
		if x.Session.counts && x.Session.heard < x.since {
			x.Session.heard = x.since // it was posted later than that
		}
	}
	return x.outstanding == 0 && (x.state != attached || x.recalled || c.wanted(x))
}

// Settle does what had to wait for the last completion of a context.
func (c *Initiator) Settle(x *Context, now time.Duration) {
	c.settle(x, now)
	c.dispatch(now)
}

// NotReady takes back n requests that were posted and certainly not carried out:
// the first of them found no receive. The queue pair is in error.
func (c *Initiator) NotReady(x *Context, n int, now time.Duration) {
	x.peer.pending += int32(n)
	if !x.notReady {
		x.notReady = true
		c.Stats.NotReady++
	}
	c.Completed(x, n, true, now)
}

// abort ends a session that failed: because of a request, or why says why.
func (c *Initiator) abort(x *Context, why error) {
	x.broken = true
	x.state = aborting
	c.Stats.Failures++
	x.peer.Stats.Failures++
	c.do(Action{Kind: ActAbort, Context: x})
	if !x.notReady {
		c.do(Action{Kind: ActLost, Context: x, Peer: x.peer, Err: why})
	}
}
