package session

import (
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// Moved: the local address has another place in the GID table, which queue pairs do not
// follow. Each context leaves its target when nothing is under way, as if others waited for
// it, and connects its queue pair anew for the next request.
func (c *Initiator) Moved(now time.Duration) {
	defer c.dispatch(now)
	for i := range c.Contexts {
		switch x := &c.Contexts[i]; x.state {
		case joining:
			x.moved = true
		case attached, draining:
			x.moved, x.state = true, draining
			c.settle(x, now)
		}
	}
}

// Moved: the local address has another place in the GID table, which queue pairs do not
// follow. All sessions end, and their initiators are told.
func (c *Target) Moved(now time.Duration) {
	for i := range c.slots {
		if s := c.slots[i].session; s != nil {
			m := s.answer
			m.Kind, m.Reason = wire.Refused, wire.StaleSession
			c.io.Send(s.to, &m)
			c.end(s, false, now)
		}
	}
}
