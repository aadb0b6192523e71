package session

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TargetIO is what the target's machine has done for it.
type TargetIO interface {
	// Attach connects a responder context to the initiator context that m names,
	// and returns its queue pair number. Release follows an error, too.
	Attach(slot int, session uint64, m *wire.Message) (qpn uint32, err error)
	// Release ends it. The driver calls Ready when the context can serve again,
	// not before everything received under the session is accounted for, or when
	// that failed. A context that is not clean must not meet packets of the old
	// session again: it needs another queue pair number.
	Release(slot int, session uint64, clean bool)
	// Prepare makes what was released ready at once, if that is possible.
	Prepare()
	// Repair tries again, with a queue pair that is new, to make a context ready after
	// an error passed to Ready. Then comes Ready.
	Repair(slot int)
	// Moved reports whether the responder context has received anything of its session
	// since the last call.
	Moved(slot int) bool
	Send(to wire.ControlAddress, m *wire.Message)
}

// TargetLimits of a target.
type TargetLimits struct {
	Lease  time.Duration // of a session with a silent initiator
	Retry  time.Duration // busy initiators come again after this
	Recall time.Duration // after which a session ends that was asked for and not given back
	// PacketsCount: what a responder context receives is a sign of life of the
	// initiator, which need not send keep-alives then. The driver can report it
	// ([TargetIO.Moved]).
	PacketsCount bool
}

// TargetStats are dc.TargetStats.
type TargetStats struct {
	Attaches, Detaches, Expired, Reclaimed, Busy, Refused, Recalls, Malformed uint64
	Live                                                                      int
}

// responder is a session at the target: a DC responder, with one
// responder context.
type responder struct {
	id       uint64
	sender   uint64
	context  uint32
	attempt  uint32
	slot     int // responder context
	expires  time.Duration
	look     time.Duration // when to see whether packets have come
	asked    time.Duration // when it was first recalled; 0: it was not
	recalled time.Duration // next recall
	answer   wire.Message  // sent again for each copy of the connect
	to       wire.ControlAddress
}

// contextKey is an initiator context as it serves one of its initiator's peers. Two
// peers may be this target, by two of its addresses: the session that is kept for one
// does not end when the context comes for the other.
type contextKey struct {
	sender  uint64
	context uint32
	peer    uint32
}

func keyOf(m *wire.Message) contextKey { return contextKey{m.Sender, m.Context, m.Peer} }

// waiter is an initiator context that got a busy reply.
type waiter struct {
	contextKey
	to    wire.ControlAddress
	until time.Duration
}

// slot is a responder context.
type slot struct {
	session  *responder
	failures int           // to make it ready, in a row
	repair   time.Duration // when that is tried again; 0: not
}

// Target gives out responder contexts.
type Target struct {
	TargetLimits
	Epoch uint64
	Stats TargetStats

	key      uint64
	io       TargetIO
	slots    []slot
	free     []int // the one that rested longest is first
	sessions map[uint64]*responder
	contexts map[contextKey]*responder
	ended    endings
	waiters  []waiter
	wanted   time.Duration // when a busy reply was sent last
	nextID   func() uint64
}

// NewTarget makes a machine with so many responder contexts.
func NewTarget(epoch, key uint64, slots int, l TargetLimits, io TargetIO, nextID func() uint64) *Target {
	c := &Target{TargetLimits: l, Epoch: epoch, key: key, io: io, nextID: nextID, slots: make([]slot, slots),
		sessions: make(map[uint64]*responder), contexts: make(map[contextKey]*responder)}
	for i := range slots {
		c.free = append(c.free, i)
	}
	return c
}

// Counted returns the statistics so far.
func (c *Target) Counted() TargetStats {
	s := c.Stats
	s.Live = len(c.sessions)
	return s
}

// Owner returns the initiator that has a session; ok is false if that is over.
func (c *Target) Owner(session uint64) (sender uint64, ok bool) {
	s := c.sessions[session]
	if s == nil {
		return 0, false
	}
	return s.sender, true
}

// answer begins a message that replies to m.
func (c *Target) answer(k wire.Kind, m *wire.Message) *wire.Message {
	return &wire.Message{Kind: k, Epoch: c.Epoch, Sender: m.Sender, Context: m.Context, Attempt: m.Attempt, Peer: m.Peer, Session: m.Session}
}

func (c *Target) refuse(m *wire.Message, why wire.Reason) {
	c.Stats.Refused++
	r := c.answer(wire.Refused, m)
	r.Reason = why
	c.io.Send(m.From, r)
}

// Received takes a control message from an initiator. One without the access key
// gets no reply.
func (c *Target) Received(m *wire.Message, now time.Duration) {
	if m.Key != c.key { // one instruction, whose time does not depend on the keys
		c.Stats.Refused++
		return
	}
	switch m.Kind {
	case wire.Probe:
		a := c.answer(wire.Alive, m)
		a.Session, a.Wait = 0, m.Wait
		c.io.Send(m.From, a)
	case wire.Connect:
		c.connect(m, now)
	case wire.KeepAlive:
		s := c.find(m)
		if s == nil {
			c.refuse(m, wire.StaleSession)
			return
		}
		s.expires = now + c.Lease
		a := c.answer(wire.Alive, m)
		a.Wait = m.Wait
		c.io.Send(m.From, a)
	case wire.Detach:
		c.detach(m, now)
		c.io.Send(m.From, c.answer(wire.Detached, m))
	default:
		c.Stats.Malformed++
	}
}

// find returns the session that m means, if it is of the same initiator context.
func (c *Target) find(m *wire.Message) *responder {
	s := c.sessions[m.Session]
	if s == nil || m.Epoch != c.Epoch || s.sender != m.Sender || s.context != m.Context || s.attempt != m.Attempt {
		return nil
	}
	return s
}

// detach ends a session. An initiator that has asked for one and not heard of it
// names its attempt alone, and may be faster than what asked.
func (c *Target) detach(m *wire.Message, now time.Duration) {
	s := c.find(m)
	if key := keyOf(m); m.Session == 0 {
		if s = c.contexts[key]; s == nil || s.attempt != m.Attempt {
			c.ended.add(key, m.Attempt, false, now, c.Lease)
			return
		}
	}
	if s != nil {
		c.Stats.Detaches++
		c.end(s, m.Reason != wire.Broken, now)
	}
}

// superseded handles what is there of the context that asks for a session, and
// reports whether that settled the matter.
func (c *Target) superseded(m *wire.Message, now time.Duration) bool {
	key := keyOf(m)
	if s := c.contexts[key]; s != nil {
		switch ahead := int32(m.Attempt - s.attempt); {
		case ahead < 0:
			return true // a late copy
		case ahead == 0:
			c.io.Send(m.From, &s.answer)
			return true
		}
		// The initiator context has been reset meanwhile: it serves one session at
		// a time. One that was kept left nothing under way.
		c.Stats.Detaches++
		c.end(s, s.id == m.Session, now)
	}
	switch {
	case c.ended.refused(key, m.Attempt):
		c.refuse(m, wire.BadSetup)
		return true
	case c.ended.late(key, m.Attempt):
		return true
	}
	if s := c.sessions[m.Session]; s != nil && s.sender == m.Sender {
		// Kept, and of another context of this initiator.
		c.Stats.Detaches++
		c.end(s, true, now)
	}
	return false
}

func (c *Target) connect(m *wire.Message, now time.Duration) {
	if m.Epoch != 0 && m.Epoch != c.Epoch {
		c.refuse(m, wire.StaleTarget)
		return
	}
	if c.superseded(m, now) {
		return
	}
	if len(c.free) == 0 {
		c.io.Prepare()
	}
	if key := keyOf(m); !c.turn(key, m.From, now) {
		c.wait(key, m, now)
		return
	}
	c.open(m, now)
}

// open gives the responder context that rested longest to an initiator context.
func (c *Target) open(m *wire.Message, now time.Duration) {
	k := c.free[0]
	id := c.nextID()
	c.free = c.free[1:]
	qpn, err := c.io.Attach(k, id, m)
	if err != nil {
		// Copies of the packet must not open what its sender has given up.
		c.ended.add(keyOf(m), m.Attempt, true, now, c.Lease)
		c.refuse(m, wire.BadSetup)
		c.io.Release(k, id, false) // it may be what is wrong
		return
	}
	s := &responder{id: id, sender: m.Sender, context: m.Context, attempt: m.Attempt, slot: k, expires: now + c.Lease, look: Never, to: m.From}
	s.answer = *c.answer(wire.Attached, m)
	if c.PacketsCount {
		s.answer.Key = wire.PacketsCount
		c.lookLater(s, now)
	}
	s.answer.Session, s.answer.QPN, s.answer.Wait = id, qpn, milliseconds(c.Lease)
	c.slots[k].session = s
	c.sessions[id], c.contexts[keyOf(m)] = s, s
	c.Stats.Attaches++
	c.io.Send(m.From, &s.answer)
}

// end closes a session.
func (c *Target) end(s *responder, clean bool, now time.Duration) {
	key := keyOf(&s.answer)
	delete(c.sessions, s.id)
	delete(c.contexts, key)
	c.slots[s.slot].session = nil
	if clean {
		c.ended.add(key, s.attempt, false, now, c.Lease)
	}
	c.io.Release(s.slot, s.id, clean)
}

// Ready takes a responder context that can serve again, or could not be made ready.
func (c *Target) Ready(k int, err error, now time.Duration) {
	s := &c.slots[k]
	if err != nil {
		s.failures++
		s.repair = now + repairPause<<min(s.failures, 10)
		return
	}
	s.failures, s.repair = 0, 0
	c.free = append(c.free, k)
	if i := len(c.free) - 1; i < len(c.waiters) {
		w := c.waiters[i]
		c.io.Send(w.to, &wire.Message{Kind: wire.Busy, Epoch: c.Epoch, Sender: w.sender, Context: w.context, Peer: w.peer})
	}
}

// Next returns when Tick should be called.
func (c *Target) Next() time.Duration {
	t := Never
	for i := range c.slots {
		k := &c.slots[i]
		if k.repair != 0 {
			t = min(t, k.repair)
		}
		if s := k.session; s != nil {
			t = min(t, s.expires, s.look)
			switch {
			case s.asked == 0:
			case len(c.waiters) == 0:
				t = min(t, c.wanted+forgetRecall*c.Recall)
			default:
				t = min(t, max(s.recalled, s.asked), s.asked+c.Recall)
			}
		}
	}
	return t
}

// forgetRecall is for how many times the bound on recalled sessions it is remembered that
// one was recalled while no initiator waits. A waiting initiator is not always there: one that
// is busy elsewhere comes again when it has a context. If each time began anew, it would
// never get a responder context from one that does not give it back.
const forgetRecall = 8

// forgotten reports whether no initiator has waited for so long.
func (c *Target) forgotten(now time.Duration) bool {
	return len(c.waiters) == 0 && now >= c.wanted+forgetRecall*c.Recall
}

// Tick takes back the responder contexts of initiators that fell silent, or do
// not give back what they are asked for while others wait. The driver must have passed
// on what it has received.
func (c *Target) Tick(now time.Duration) {
	c.waiters = slices.DeleteFunc(c.waiters, func(w waiter) bool { return w.until <= now })
	for i := range c.slots {
		k := &c.slots[i]
		if k.repair != 0 && now >= k.repair {
			k.repair = 0
			c.io.Repair(i)
		}
		s := k.session
		if s != nil && c.PacketsCount && now >= min(s.expires, s.look) {
			c.watch(s, now)
		}
		switch {
		case s == nil:
		case now >= s.expires:
			c.Stats.Expired++
			c.end(s, false, now)
		case s.asked == 0:
		case len(c.waiters) == 0:
			if c.forgotten(now) {
				s.asked, s.recalled = 0, 0
			}
		case now >= s.asked+c.Recall:
			c.Stats.Reclaimed++
			c.end(s, false, now)
		default:
			c.ask(s, now)
		}
	}
}

// lookLater sets when the target looks whether packets have come: after a quarter to
// half of the lease, by the session's id, so that it does not look at all of those that
// were opened together at the same time. Of the last packet it learns so much later at
// most, and then keeps the session for a whole lease.
func (c *Target) lookLater(s *responder, now time.Duration) {
	s.look = now + c.Lease/4 + time.Duration(s.id%1024)*c.Lease/4096 + 1
}

// watch takes packets that have come for a sign of life.
func (c *Target) watch(s *responder, now time.Duration) {
	c.lookLater(s, now)
	if c.io.Moved(s.slot) {
		s.expires = now + c.Lease
	}
}
