package shaper

import (
	"math/bits"
	"slices"
	"time"
)

// candidate is the request packet that a unit presents.
type candidate struct {
	flow, cmd int32
	sub       int32 // to be issued again, or none
	length    int
	wire      int64 // of the response, or of a PUT
	reason    Reason
}

// Grant is a request packet that goes now.
type Grant struct {
	Sub     Sub
	Request Request
	Flow    Flow
	Tag     uint64
	Kind    Kind
	Offset  int // of a GET
	Length  int
	First   bool // of its request
	Again   bool // it failed before
}

// Next returns the request packet that goes next, if any may. It must be called until it returns
// false, and again whenever something changed, or the time of [Shaper.Wake] has come.
func (s *Shaper) Next(now time.Duration) (Grant, bool) {
	s.wake = 0
	if s.paused || s.pending == 0 {
		return Grant{}, false
	}
	s.in.refill(now)
	s.out.refill(now)
	s.lapse(now)
	s.endProbe(now)
	for {
		s.checkDue()
		best, held := s.arbitrate()
		switch {
		case best != none:
			return s.grant(best, now), true
		case held != ClassCap || !s.makeWay():
			return Grant{}, false
		}
	}
}

// makeWay gives a unit of a class at its cap to the first flow in line that no cap holds, and reports
// whether there is one. Of those units it takes the last in turn, so that the flows of the class keep their
// order.
func (s *Shaper) makeWay() bool {
	unit := none
	for m := s.busy; m != 0; m &= m - 1 {
		u := bits.TrailingZeros64(m)
		if s.present[u].reason == ClassCap && (unit == none || s.turns[u] > s.turns[unit]) {
			unit = u
		}
	}
	capped := s.units[unit]
	lines := [...]*list{&s.urgent, &s.waiting}
	if s.line(capped) == &s.waiting { // its unit is part of the share of this line
		slices.Reverse(lines[:])
	}
	var p candidate
	for _, l := range lines {
		for f := l.head; f != none; f = s.flows[f].waiting {
			if s.offer(&p, f); p.reason != ClassCap {
				s.leave(f)
				s.displace(capped)
				s.assign(unit, f)
				return true
			}
		}
	}
	return false
}

// arbitrate has each unit present a request packet, and returns the unit that goes. If none may,
// best is none and held the limit.
func (s *Shaper) arbitrate() (best int, held Reason) {
	best = none
	for m := s.busy; m != 0; m &= m - 1 {
		u := bits.TrailingZeros64(m)
		p := &s.present[u]
		for s.units[u] != none {
			f := s.units[u]
			s.offer(p, f)
			if !p.reason.own() {
				break
			}
			s.park(f) // perhaps another flow has the unit now
		}
		if s.units[u] != none && (p.reason == ClassCap || held == None) {
			held = p.reason
		}
	}
	if s.cfg.Policy == Deficit {
		s.topUp()
	}
	for m := s.busy; m != 0; m &= m - 1 {
		if u := bits.TrailingZeros64(m); s.goes(u) && (best == none || s.before(u, best)) {
			best = u
		}
	}
	if best == none {
		return none, held
	}
	s.passOver(best)
	return best, None
}

// goes reports whether the request packet that a unit presents may go. Small requests need no
// deficit: they have their reserve, and make debts.
func (s *Shaper) goes(u int) bool {
	p := &s.present[u]
	return p.reason == None &&
		(s.cfg.Policy != Deficit || s.flows[p.flow].deficit >= p.wire || s.isSmall(&s.cmds[p.cmd]))
}

// claims reports whether a unit presents a request packet that takes part in rounds of the
// deficit policy: one that could go, or waits for room that smaller ones would take.
func (s *Shaper) claims(u int) bool {
	p := &s.present[u]
	return p.reason == None || p.reason == Threshold || p.reason == Rate || p.reason == Outbound
}

// topUp adds quanta to the flows of each class that take part, as many as let one of
// them go. A round does not end while a flow that has enough is held: flows with smaller
// requests would have the next round too, and the room. PUTs have rounds of their own.
func (s *Shaper) topUp() {
	var rounds [2 * MaxClasses]int64 // and one
	for m := s.busy; m != 0; m &= m - 1 {
		if u := bits.TrailingZeros64(m); s.claims(u) {
			p := &s.present[u]
			f := &s.flows[p.flow]
			n := int64(0)
			if q := s.round(f); p.wire > f.deficit {
				n = (p.wire - f.deficit + q - 1) / q
			}
			if r := &rounds[s.roundOf(p)]; *r == 0 || n < *r-1 {
				*r = n + 1
			}
		}
	}
	for m := s.busy; m != 0; m &= m - 1 {
		if u := bits.TrailingZeros64(m); s.claims(u) {
			p := &s.present[u]
			f := &s.flows[p.flow]
			f.deficit += (rounds[s.roundOf(p)] - 1) * s.round(f)
		}
	}
}

func (s *Shaper) roundOf(p *candidate) int {
	c := &s.cmds[p.cmd]
	if c.Kind == Put {
		return 2*c.Class + 1
	}
	return 2 * c.Class
}

func (s *Shaper) round(f *flow) int64 { return s.quantum * int64(f.Weight) }

// passOver counts the units that were passed over for another one. Of the flows that were too
// often, GETs, or PUTs, wait for the first in turn.
func (s *Shaper) passOver(best int) {
	due, duePut := none, none
	for m := s.busy; m != 0; m &= m - 1 {
		u := bits.TrailingZeros64(m)
		p := &s.present[u]
		if p.reason == None || !s.before(u, best) {
			continue
		}
		f := &s.flows[p.flow]
		f.passes++
		s.stats.Passes++
		s.classes[s.cmds[p.cmd].Class].Passes++
		if f.passes < s.cfg.MaxPasses {
			continue
		}
		switch p.reason {
		case Threshold, Rate:
			if due == none || s.before(u, due) {
				due = u
			}
		case Outbound:
			if duePut == none || s.before(u, duePut) {
				duePut = u
			}
		}
	}
	if due != none && s.due == none {
		s.due = s.present[due].flow
	}
	if duePut != none { // while a PUT is due no other one is held by the budget
		s.duePut = s.present[duePut].flow
	}
}

// checkDue ends the precedence of flows that could not use what they wait for.
func (s *Shaper) checkDue() {
	var p candidate
	if s.due != none {
		f := &s.flows[s.due]
		if f.down || f.unit == none || f.lent > 0 || f.ordPktActive >= s.ordLimit(f) || f.posted >= f.Depth || !s.nextGet(&p, s.due) {
			f.passes = 0
			s.due = none
		}
	}
	if s.duePut != none {
		f := &s.flows[s.duePut]
		if f.down || f.unit == none || f.posted >= f.Depth || !s.nextPut(&p, s.duePut) {
			f.passes = 0
			s.duePut = none
		}
	}
}

// before reports whether unit u comes before unit v.
func (s *Shaper) before(u, v int) bool {
	a, b := &s.present[u], &s.present[v]
	ca, cb := &s.cmds[a.cmd], &s.cmds[b.cmd]
	ka, kb := &s.classes[ca.Class], &s.classes[cb.Class]
	switch {
	case ka == kb:
	case ka.Priority != kb.Priority:
		return ka.Priority > kb.Priority
	case ka.served != kb.served:
		return ka.served < kb.served
	default:
		return ca.Class < cb.Class
	}
	fa, fb := &s.flows[a.flow], &s.flows[b.flow]
	switch s.cfg.Policy {
	case Priority:
		if fa.Priority != fb.Priority {
			return fa.Priority > fb.Priority
		}
	case Deficit: // the one that goes on while it has something left
		return s.after(u, ka.last) < s.after(v, ka.last)
	}
	return s.turns[u] < s.turns[v]
}

// after returns how far unit u is from another one, in the order of their numbers.
func (s *Shaper) after(u, from int) int {
	n := len(s.units)
	return (u - from%n + n) % n
}

// offer fills in the request packet that a flow could send next: the first if it may go, or a
// PUT that overtakes held GETs.
func (s *Shaper) offer(p *candidate, f int32) {
	fl := &s.flows[f]
	switch {
	case fl.down:
		*p = candidate{flow: f, cmd: none, sub: none, reason: Down}
	case s.nextGet(p, f):
		if p.reason = s.limit(p); p.reason != None && fl.puts.head != none {
			s.overtake(p, f)
		}
	case s.nextPut(p, f):
		p.reason = s.limit(p)
	default:
		*p = candidate{flow: f, cmd: none, sub: none, reason: Behind}
	}
}

// overtake offers a PUT in place of a GET that is held, if the PUT may go, or if the GET is held by
// a limit of the flow itself.
func (s *Shaper) overtake(get *candidate, f int32) {
	var put candidate
	if !s.nextPut(&put, f) {
		return
	}
	if put.reason = s.limit(&put); put.reason == None || get.reason.own() {
		*get = put
	}
}

// nextGet fills in the sub-request of a GET, or the atomic, that a flow could send, and reports
// whether there is one: a piece that failed, or the next piece of the first command. It does not
// overtake PUTs.
func (s *Shaper) nextGet(p *candidate, f int32) bool {
	fl := &s.flows[f]
	if i := fl.failed.head; i != none {
		sb := &s.subs[i]
		*p = candidate{flow: f, cmd: sb.cmd, sub: i, length: sb.length, wire: s.cfg.RspPktLen(sb.length)}
		return true
	}
	g, put := fl.gets.head, fl.puts.head
	if g == none || put != none && s.cmds[put].seq < s.cmds[g].seq {
		return false
	}
	c := &s.cmds[g]
	n := c.Length - c.offset
	if s.cfg.Slice > 0 && !c.Whole {
		n = min(n, s.cfg.Slice)
	}
	*p = candidate{flow: f, cmd: g, sub: none, length: n, wire: s.cfg.RspPktLen(n)}
	return true
}

// nextPut fills in the PUT that a flow could send, and reports whether there is one. It overtakes
// GETs, unless one of them or the PUT has a fence.
func (s *Shaper) nextPut(p *candidate, f int32) bool {
	fl := &s.flows[f]
	put := fl.puts.head
	if put == none {
		return false
	}
	c := &s.cmds[put]
	if x := fl.fences.head; x != none && s.cmds[x].seq <= c.seq {
		if g := fl.gets.head; g != none && s.cmds[g].seq < c.seq || fl.failed.head != none {
			return false
		}
	}
	*p = candidate{flow: f, cmd: put, sub: none, length: c.Length, wire: s.cfg.RspPktLen(c.Length)}
	return true
}

func (s *Shaper) isSmall(c *command) bool { return c.Length <= s.cfg.Small }
