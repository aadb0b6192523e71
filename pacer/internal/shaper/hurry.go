package shaper

import "time"

// A request is late when its deadline has passed, or when it has waited for the Promote time of
// its class. Late requests go before all others, so their flows do not wait in line for a unit.

// lateAt returns when a command goes before all classes, or never.
func (s *Shaper) lateAt(c *command) time.Duration {
	at := time.Duration(never)
	if c.Deadline > 0 {
		at = c.Deadline
	}
	if p := s.classes[c.Class].Promote; p > 0 {
		at = min(at, c.since+p)
	}
	return at
}

func (s *Shaper) late(f int32, now time.Duration) bool {
	c := s.first(f)
	return c != none && now >= s.lateAt(&s.cmds[c])
}

// expect schedules [Shaper.hurry] for when the first command of a flow in line is late.
func (s *Shaper) expect(f int32) {
	if c := s.first(f); c != none {
		s.hurryAt = min(s.hurryAt, s.lateAt(&s.cmds[c]))
	}
}

// hurry gives units to flows in line that are late, and looks again each time while there
// are more of them than units.
func (s *Shaper) hurry(now time.Duration) {
	if now < s.hurryAt {
		return
	}
	s.hurryAt = never
	for _, l := range [...]*list{&s.urgent, &s.waiting} {
		for f := l.head; f != none; {
			next := s.flows[f].waiting
			s.expect(f)
			if s.late(f, now) {
				u := s.leastLate(now)
				if u == none {
					s.hurryAt = 0
					return
				}
				s.leave(f)
				s.displace(s.units[u])
				s.assign(u, f)
			}
			f = next
		}
	}
}

// leastLate returns the unit of the least urgent flow that is not late itself, or none.
func (s *Shaper) leastLate(now time.Duration) (unit int) {
	unit, least := none, 0
	for u, f := range s.units {
		if f == none || f == s.due || f == s.duePut || s.late(f, now) {
			continue
		}
		if n := s.urgency(f); unit == none || n < least {
			unit, least = u, n
		}
	}
	return unit
}
