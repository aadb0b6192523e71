package shaper

import "time"

func (r Reason) String() string {
	return [...]string{"goes", "finished", "link paused", "queue pair in error", "behind others of its flow", "responses overdue", "OrdPktActive", "send queue",
		"no slicing unit", "READs of the device", "cap of its class", "threshold", "another one is due", "solicited rate",
		"outbound budget", "arbitration"}[r]
}

// Explain returns the limit that holds a request now.
func (s *Shaper) Explain(r Request, now time.Duration) Reason {
	c := &s.cmds[r]
	if c.sliced && c.failed == 0 {
		if c.ended {
			return Finished
		}
		return None
	}
	f := &s.flows[c.flow]
	switch {
	case s.paused:
		return Paused
	case f.down:
		return Down
	}
	s.in.refill(now)
	s.out.refill(now)
	var p candidate
	at := int32(r)
	if !(s.nextPut(&p, c.flow) && p.cmd == at || s.nextGet(&p, c.flow) && p.cmd == at) {
		return Behind
	}
	wake := s.wake
	reason := s.limit(&p)
	s.wake = wake
	switch {
	case reason != None:
		return reason
	case f.unit == none:
		return NoUnit
	}
	return Arbitration
}
