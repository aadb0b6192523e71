package shaper

import "time"

// A queue pair with a dead or unreachable peer holds its credit until the transport gives up, for
// seconds or minutes, and with it all others. A response that is overdue for so long does not
// wait in front of this host: it was lost, or never sent. So its bytes are lent to others until
// they come back, and its flow has to wait for them. When the link itself stands still, one
// more response at a time is asked for, of another flow each, which shows when it goes on.

// lapse lends the credit of overdue responses, and schedules the next look.
func (s *Shaper) lapse(now time.Duration) {
	if s.cfg.Overdue < 0 || s.gets == 0 {
		return
	}
	if now >= s.lapseAt {
		s.lapseAt = now + s.cfg.Overdue/2
		all, _ := s.live()
		late := now - s.cfg.Overdue*time.Duration(1+min(all>>16, 1<<14))
		for i := range s.subs {
			sb := &s.subs[i]
			if !sb.under || sb.lent || s.cmds[sb.cmd].Kind == Put {
				continue
			}
			f := &s.flows[s.cmds[sb.cmd].flow]
			if !f.Patient && max(sb.granted, f.heard) <= late {
				s.lend(sb)
				s.stats.Overdue++
			}
		}
	}
	if s.gets > s.lentGets {
		s.wakeAt(s.lapseAt)
	}
}

func (s *Shaper) lend(sb *sub) {
	s.unstrand(sb)
	c := &s.cmds[sb.cmd]
	sb.lent = true
	s.lentGets++
	s.lent += sb.wire
	if sb.small {
		s.lentSmall += sb.wire
	}
	s.flows[c.flow].lent++
	s.classes[c.Class].lent += sb.wire
}

// endLoan ends the loan of credit that came back, or of a response that is expected again.
func (s *Shaper) endLoan(sb *sub) {
	if !sb.lent {
		return
	}
	c := &s.cmds[sb.cmd]
	sb.lent = false
	s.lentGets--
	s.lent -= sb.wire
	if sb.small {
		s.lentSmall -= sb.wire
	}
	s.flows[c.flow].lent--
	s.classes[c.Class].lent -= sb.wire
}

// hear records that something of a flow came: the rest is expected again.
func (s *Shaper) hear(at int32, now time.Duration) {
	f := &s.flows[at]
	f.heard = now
	if f.lent == 0 {
		return
	}
	for i := range s.subs {
		if sb := &s.subs[i]; sb.under && s.cmds[sb.cmd].flow == at {
			s.endLoan(sb)
		}
	}
}

// live returns the response bytes outstanding that are not lent, all and those of small
// requests. During a probe of the tuner, responses that an earlier probe waited for in vain do
// not count either.
func (s *Shaper) live() (all, small int64) {
	all, small = s.outstanding-s.lent, s.small-s.lentSmall
	if s.probes() {
		all -= s.stranded
	}
	return all, small
}

func (s *Shaper) probes() bool { return s.cfg.Tune && s.tune.probing > 0 }

// endProbe ends a probe that has lasted for probeTime: a response does not come, or a
// program keeps its credit. Later probes do not wait for what is outstanding now.
func (s *Shaper) endProbe(now time.Duration) {
	if !s.probes() {
		return
	}
	end := s.tune.renewed + probeTime
	if now < end {
		s.wakeAt(end)
		return
	}
	s.tune.probing = 0
	s.tune.newRound(now)
	for i := range s.subs {
		if sb := &s.subs[i]; sb.under && !sb.lent && !sb.small && !sb.stranded && s.cmds[sb.cmd].Kind != Put {
			sb.stranded = true
			s.stranded += sb.wire
		}
	}
}

func (s *Shaper) unstrand(sb *sub) {
	if sb.stranded {
		sb.stranded = false
		s.stranded -= sb.wire
	}
}
