package dc

import (
	"slices"
	"time"
)

// responder is a session at the target: the patent's DC responder, with one
// responder context.
type responder struct {
	id       uint64
	sender   uint64
	context  uint32
	attempt  uint32
	slot     int // responder context
	expires  time.Duration
	recalled time.Duration // next recall
	answer   message       // sent again for each copy of the connect
	to       place
}

type contextKey struct {
	sender  uint64
	context uint32
}

// waiter is an initiator context that was answered busy.
type waiter struct {
	contextKey
	peer  uint32
	to    place
	until time.Duration
}

// targetIO is what the target's state machine has done for it.
type targetIO interface {
	// attach connects a responder context to the initiator context that m
	// names, and answers its queue pair number.
	attach(slot int, session uint64, m *message) (qpn uint32, err error)
	// release ends it. The driver calls ready when the context can serve
	// again, not before everything received under the session is accounted
	// for. A context that is not clean must not meet packets of the old
	// session again.
	release(slot int, session uint64, clean bool)
	// prepare makes what was released ready at once, if that is possible.
	prepare()
	send(to place, m *message)
}

type targetLimits struct {
	lease time.Duration
	retry time.Duration // busy initiators come again after this
}

// targetCore gives out responder contexts. Like [initiatorCore] it has no clock
// and does no I/O.
type targetCore struct {
	targetLimits
	epoch    uint64
	key      uint64
	io       targetIO
	free     []int // the one that rested longest is first
	sessions map[uint64]*responder
	contexts map[contextKey]*responder
	over     overdue
	waiters  []waiter
	nextID   func() uint64
	stats    TargetStats
}

func newTargetCore(epoch, key uint64, slots int, l targetLimits, io targetIO, nextID func() uint64) *targetCore {
	c := &targetCore{targetLimits: l, epoch: epoch, key: key, io: io, nextID: nextID,
		sessions: make(map[uint64]*responder), contexts: make(map[contextKey]*responder)}
	for i := range slots {
		c.free = append(c.free, i)
	}
	return c
}

// answer begins a message that answers m.
func (c *targetCore) answer(k kind, m *message) *message {
	return &message{kind: k, epoch: c.epoch, sender: m.sender, context: m.context, attempt: m.attempt, peer: m.peer, session: m.session}
}

func (c *targetCore) refuse(m *message, why reason) {
	c.stats.Refused++
	r := c.answer(msgRefuse, m)
	r.reason = why
	c.io.send(m.from, r)
}

// received takes a control message from an initiator.
func (c *targetCore) received(m *message, now time.Duration) {
	switch m.kind {
	case msgConnect:
		c.connect(m, now)
	case msgEstablished:
		if s := c.find(m); s != nil {
			s.expires = now + c.lease
			e := c.answer(msgEstablished, m)
			e.wait = m.wait
			c.io.send(m.from, e)
			return
		}
		c.refuse(m, staleSession)
	case msgDetach:
		if s := c.find(m); s != nil {
			c.stats.Detaches++
			c.end(s, m.reason != broken, now)
		}
		c.io.send(m.from, c.answer(msgDetached, m))
	default:
		c.stats.Rubbish++
	}
}

// find is the session that m means, if it is of the same initiator context.
func (c *targetCore) find(m *message) *responder {
	s := c.sessions[m.session]
	if s == nil || m.epoch != c.epoch || s.sender != m.sender || s.context != m.context || s.attempt != m.attempt {
		return nil
	}
	return s
}

func (c *targetCore) connect(m *message, now time.Duration) {
	switch {
	case m.epoch != 0 && m.epoch != c.epoch:
		c.refuse(m, staleTarget)
		return
	case m.key != c.key:
		c.refuse(m, badKey)
		return
	}
	key := contextKey{m.sender, m.context}
	if s := c.contexts[key]; s != nil {
		switch ahead := int32(m.attempt - s.attempt); {
		case ahead == 0:
			c.io.send(m.from, &s.answer)
			return
		case ahead < 0:
			return // a late copy
		}
		// The initiator context has been reset meanwhile: it serves one
		// session at a time. A parked one left nothing under way.
		c.stats.Detaches++
		c.end(s, s.id == m.session, now)
	}
	if c.over.late(key, m.attempt) {
		return
	}
	if s := c.sessions[m.session]; s != nil && s.sender == m.sender {
		// Parked, and of another context of this initiator.
		c.stats.Detaches++
		c.end(s, true, now)
	}
	if len(c.free) == 0 {
		c.io.prepare()
	}
	if !c.turn(key, m.from, now) {
		c.wait(key, m, now)
		return
	}
	slot := c.free[0]
	id := c.nextID()
	qpn, err := c.io.attach(slot, id, m)
	if err != nil {
		c.refuse(m, badSetup)
		return
	}
	c.free = c.free[1:]
	s := &responder{id: id, sender: m.sender, context: m.context, attempt: m.attempt, slot: slot, expires: now + c.lease, to: m.from}
	s.answer = *c.answer(msgAttached, m)
	s.answer.session, s.answer.qpn, s.answer.wait = id, qpn, uint32(c.lease.Milliseconds())
	c.sessions[id], c.contexts[key] = s, s
	c.stats.Attaches++
	c.io.send(m.from, &s.answer)
}

// turn tells whether a free responder context is for this initiator context:
// those that were answered busy come first, in order.
func (c *targetCore) turn(key contextKey, from place, now time.Duration) bool {
	c.waiters = slices.DeleteFunc(c.waiters, func(w waiter) bool { return w.until <= now })
	for i, w := range c.waiters {
		if i >= len(c.free) {
			return false
		}
		if w.sender == key.sender && w.to == from {
			c.waiters = slices.Delete(c.waiters, i, i+1)
			return true
		}
	}
	return len(c.free) > len(c.waiters)
}

// maxWaiters bounds what strangers can make the target remember.
const maxWaiters = 1024

// wait answers busy, and asks those that have responder contexts for one.
func (c *targetCore) wait(key contextKey, m *message, now time.Duration) {
	until := now + 4*c.retry
	known := false
	for i := range c.waiters {
		if w := &c.waiters[i]; w.sender == key.sender && w.to == m.from {
			w.contextKey, w.peer, w.until, known = key, m.peer, until, true
		}
	}
	if !known && len(c.waiters) < maxWaiters {
		c.waiters = append(c.waiters, waiter{key, m.peer, m.from, until})
	}
	c.stats.Busy++
	b := c.answer(msgBusy, m)
	b.wait = uint32(max(c.retry.Milliseconds(), 1))
	c.io.send(m.from, b)
	for _, s := range c.sessions {
		if now >= s.recalled {
			s.recalled = now + c.retry
			c.stats.Recalls++
			r := s.answer
			r.kind = msgRecall
			c.io.send(s.to, &r)
		}
	}
}

// end closes a session.
func (c *targetCore) end(s *responder, clean bool, now time.Duration) {
	key := contextKey{s.sender, s.context}
	delete(c.sessions, s.id)
	delete(c.contexts, key)
	if clean {
		c.over.add(key, s.attempt, now, c.lease)
	}
	c.io.release(s.slot, s.id, clean)
}

// ready: a responder context can serve again.
func (c *targetCore) ready(slot int, now time.Duration) {
	c.free = append(c.free, slot)
	if i := len(c.free) - 1; i < len(c.waiters) {
		w := c.waiters[i]
		c.io.send(w.to, &message{kind: msgBusy, epoch: c.epoch, sender: w.sender, context: w.context, peer: w.peer})
	}
}

// next is when tick should be called.
func (c *targetCore) next() time.Duration {
	t := never
	for _, s := range c.sessions {
		t = min(t, s.expires)
	}
	return t
}

// tick takes back the responder contexts of initiators that fell silent.
func (c *targetCore) tick(now time.Duration) {
	for _, s := range c.sessions {
		if now >= s.expires {
			c.stats.Expired++
			c.end(s, false, now)
		}
	}
}
