package shaper

import "time"

// Reason is the limit that holds a request.
type Reason uint8

const (
	None         Reason = iota // it goes, or is under way
	Finished                   // nothing of it is left
	Paused                     // the link is
	Down                       // its queue pair is in error
	Behind                     // others of its flow come first
	Stalled                    // nothing of its queue pair came for too long
	OrdPktActive               // request packets outstanding of its flow: the unit's limit, or max_rd_atomic
	SendQueue                  // the queue pair has no room
	NoUnit                     // all slicing units are taken
	Device                     // GETs and atomics outstanding of the device
	ClassCap                   // response bytes outstanding of its class
	Threshold                  // response bytes outstanding of all
	Due                        // a request that was passed over too often has precedence
	Rate                       // bytes solicited in a time
	Outbound                   // bytes sent in a time
	Arbitration                // it could go, and others come first
)

// own reports whether the limit concerns only the flow, and ends only by an event of the flow.
func (r Reason) own() bool { return r >= Down && r <= SendQueue }

func (s *Shaper) ordLimit(f *flow) int { return min(f.MaxReads, s.cfg.Ord) }

// limit returns the first limit that holds a candidate.
func (s *Shaper) limit(p *candidate) Reason {
	c := &s.cmds[p.cmd]
	f := &s.flows[p.flow]
	if f.posted >= f.Depth {
		return SendQueue
	}
	if c.Kind == Put {
		if s.duePut != none && s.duePut != p.flow {
			return Due
		}
		if ok, at := s.out.has(p.wire, 0); !ok {
			s.wakeAt(at)
			return Outbound
		}
		return None
	}
	k := &s.classes[c.Class]
	small := s.isSmall(c)
	switch {
	case f.lent > 0:
		return Stalled
	case f.ordPktActive >= s.ordLimit(f):
		return OrdPktActive
	case s.cfg.Device > 0 && s.gets >= s.cfg.Device:
		return Device
	case k.Cap > 0 && k.Outstanding > k.lent && k.Outstanding-k.lent+p.wire > k.Cap:
		return ClassCap
	}
	if r := s.exceeds(p.wire, small); r != None {
		return r
	}
	if s.due != none && s.due != p.flow && !small {
		return Due
	}
	extra := int64(0)
	if small {
		extra = s.cfg.Reserve // which they solicit ahead of time
	}
	if ok, at := s.in.has(p.wire, extra); !ok {
		s.wakeAt(at)
		return Rate
	}
	return None
}

// exceeds compares a response with what the threshold leaves. Small ones have the
// reserve, and while another request is due nothing else. One that is larger than
// the threshold may go when no large one is outstanding.
func (s *Shaper) exceeds(wire int64, small bool) Reason {
	t := s.Threshold()
	outstanding, smallOut := s.live()
	if !small {
		bulk := outstanding - smallOut
		if bulk > 0 && outstanding+wire > t-s.cfg.Reserve || wire <= t-s.cfg.Reserve && outstanding+wire > t {
			s.tune.filled = true
			return Threshold
		}
		return None
	}
	room := t
	taken := outstanding
	if s.due != none || taken+wire > t {
		room, taken = s.cfg.Reserve, smallOut
	}
	if taken > 0 && taken+wire > room {
		return Threshold
	}
	return None
}

func (s *Shaper) wakeAt(at time.Duration) {
	if s.wake == 0 || at < s.wake {
		s.wake = at
	}
}

// Wake returns when [Shaper.Next] has to be called again, if nothing else happens.
func (s *Shaper) Wake() (at time.Duration, ok bool) { return s.wake, s.wake != 0 }
