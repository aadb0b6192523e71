package shaper

import "time"

// Admit is Submit and, if nothing keeps the request from going at once and whole,
// Next: it saves the way through flow queue and slicing unit, which is
// most of what an idle pacer costs. The same limits apply to the request, and it counts for the
// same. If granted is false, it waits as after Submit.
func (s *Shaper) Admit(f Flow, c Command, now time.Duration) (r Request, sub Sub, granted bool, err error) {
	at, err := s.command(f, &c, now)
	if err != nil {
		return none, 0, false, err
	}
	var p candidate
	if !s.direct(&p, at, now) {
		s.enqueue(at)
		return Request(at), 0, false, nil
	}
	s.begin(at)
	sub = s.issue(&p, now)
	s.classes[c.Class].last, s.flows[f].deficit = 0, 0
	return Request(at), sub, true, nil
}

// Instant reports whether a request that completes before anything else happens may be admitted at
// time 0, and complete then, which saves reading the clock: nothing is held or may become overdue, no
// rate bounds it, and no delay is measured. If it does not complete, [Shaper.Began] is due.
func (s *Shaper) Instant() bool {
	return !s.Held() && s.gets == 0 && s.in.rate == 0 && s.out.rate == 0 && !s.cfg.Tune
}

// Began says when a request was admitted, and sub granted if it was, for one that was admitted at
// time 0.
func (s *Shaper) Began(r Request, sub Sub, now time.Duration) {
	s.cmds[r].since = now
	if i, ok := s.sub(sub); ok {
		s.subs[i].granted = now
	}
}

// direct reports whether a command is the only one that is not granted and may go now, as a
// whole, and fills in its candidate.
func (s *Shaper) direct(p *candidate, at int32, now time.Duration) bool {
	c := &s.cmds[at]
	if s.pending > 1 || s.paused || s.flows[c.flow].down || s.cfg.Slice > 0 && !c.Whole && c.Kind != Put && c.Length > s.cfg.Slice {
		return false
	}
	s.wake = 0
	s.in.refill(now)
	s.out.refill(now)
	s.lapse(now)
	s.due, s.duePut = none, none // no flow waits
	p.flow, p.cmd, p.sub, p.length, p.wire = c.flow, at, none, c.Length, s.cfg.RspPktLen(c.Length)
	ok := s.limit(p) == None
	s.wake = 0
	return ok
}
