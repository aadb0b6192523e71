package session

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// turn reports whether a free responder context is for this initiator context:
// those that got a busy reply come first, in order.
func (c *Target) turn(key contextKey, from wire.ControlAddress, now time.Duration) bool {
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

// maxWaiters bounds what initiators can make the target remember.
const maxWaiters = 1024

// wait replies busy, and asks those that have had responder contexts for longest
// for as many as are waited for.
func (c *Target) wait(key contextKey, m *wire.Message, now time.Duration) {
	if c.forgotten(now) { // before Tick
		for i := range c.slots {
			if s := c.slots[i].session; s != nil {
				s.asked, s.recalled = 0, 0
			}
		}
	}
	c.wanted = now
	until := now + 4*c.Retry
	known := false
	for i := range c.waiters {
		if w := &c.waiters[i]; w.sender == key.sender && w.to == m.From {
			w.contextKey, w.until, known = key, until, true
		}
	}
	if !known && len(c.waiters) < maxWaiters {
		c.waiters = append(c.waiters, waiter{key, m.From, until})
	}
	c.Stats.Busy++
	b := c.answer(wire.Busy, m)
	b.Wait = max(milliseconds(c.Retry), 1)
	c.io.Send(m.From, b)
	c.recall(now)
}

// recall asks for one responder context for each that is waited for and not
// free.
func (c *Target) recall(now time.Duration) {
	need := len(c.waiters) - len(c.free)
	var rest []*responder
	for i := range c.slots {
		switch s := c.slots[i].session; {
		case s == nil:
		case s.asked != 0:
			need--
			c.ask(s, now)
		default:
			rest = append(rest, s)
		}
	}
	slices.SortFunc(rest, func(a, b *responder) int { return int(min(max(a.expires-b.expires, -1), 1)) })
	for _, s := range rest[:max(min(need, len(rest)), 0)] {
		s.asked = max(now, 1)
		c.ask(s, now)
	}
}

func (c *Target) ask(s *responder, now time.Duration) {
	if now < s.recalled {
		return
	}
	s.recalled = now + c.Retry
	c.Stats.Recalls++
	r := s.answer
	r.Kind = wire.Recall
	c.io.Send(s.to, &r)
}
