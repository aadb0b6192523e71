package shaper

import "math/bits"

// Slicing units (MCU). Each is assigned to one flow queue, and presents what that
// flow could send next. While more flows have something to send than there are
// units, the others wait in line: a unit becomes free when its flow has nothing
// left, is held by a limit of its own, or has had its turns.

// hasWork tells whether a flow has anything that is not granted.
func (s *Shaper) hasWork(f int32) bool {
	fl := &s.flows[f]
	return fl.gets.head != none || fl.puts.head != none || fl.failed.head != none
}

// ready gives a flow a unit, or a place in the line.
func (s *Shaper) ready(f int32) {
	fl := &s.flows[f]
	if fl.unit != none || fl.waits || fl.down || !s.hasWork(f) {
		return
	}
	if u := bits.TrailingZeros64(^s.busy); u < len(s.units) {
		s.assign(u, f)
		return
	}
	mine := s.urgency(f)
	if u, least := s.leastUrgent(); mine > least {
		s.wait(s.units[u])
		s.assign(u, f)
		return
	}
	s.wait(f)
}

// urgency orders flows that compete for units: by the priority of their class, then
// those that need no large part of the threshold.
func (s *Shaper) urgency(f int32) int {
	fl := &s.flows[f]
	c := fl.gets.head
	light := fl.puts.head != none
	if c == none {
		c = fl.puts.head
	} else {
		light = light || s.isSmall(&s.cmds[c])
	}
	if c == none {
		return 0
	}
	n := 2 * s.classes[s.cmds[c].Class].Priority
	if light {
		n++
	}
	return n
}

func (s *Shaper) leastUrgent() (unit, urgency int) {
	for u, f := range s.units {
		if n := s.urgency(f); u == 0 || n < urgency {
			unit, urgency = u, n
		}
	}
	return unit, urgency
}

func (s *Shaper) assign(u int, f int32) {
	fl := &s.flows[f]
	fl.unit, fl.turns = int32(u), 0
	s.units[u] = f
	s.busy |= 1 << u
	s.clock++
	s.since[u] = s.clock
}

func (s *Shaper) vacate(u int) {
	s.flows[s.units[u]].unit = none
	s.units[u] = none
	s.busy &^= 1 << u
}

// wait puts a flow into the line.
func (s *Shaper) wait(f int32) {
	fl := &s.flows[f]
	if fl.unit != none {
		s.vacate(int(fl.unit))
	}
	l := &s.waiting
	if s.urgency(f) > 0 {
		l = &s.urgent
	}
	fl.waits, fl.waiting = true, none
	if l.head == none {
		l.head = f
	} else {
		s.flows[l.tail].waiting = f
	}
	l.tail = f
}

// fill gives a free unit to the flow that waits first: of four, three times an
// urgent one.
func (s *Shaper) fill(u int) {
	l := &s.urgent
	if l.head == none || s.popped%4 == 3 && s.waiting.head != none {
		l = &s.waiting
	}
	if l.head == none {
		return
	}
	s.popped++
	f := l.head
	l.head = s.flows[f].waiting
	s.flows[f].waits = false
	s.assign(u, f)
}

// park takes the unit from a flow that cannot go on before something of its own has
// completed: [Shaper.ready] brings it back then.
func (s *Shaper) park(f int32) {
	fl := &s.flows[f]
	if u := fl.unit; u != none {
		s.vacate(int(u))
		s.fill(int(u))
	}
}

// idle takes a flow that has nothing left off its unit, or out of the line.
func (s *Shaper) idle(f int32) {
	if s.hasWork(f) {
		return
	}
	fl := &s.flows[f]
	fl.deficit, fl.passes = 0, 0
	if s.due == f {
		s.due = none
	}
	s.park(f)
	s.leave(f)
}

func (s *Shaper) leave(f int32) {
	fl := &s.flows[f]
	if !fl.waits {
		return
	}
	fl.waits = false
	for _, l := range [...]*list{&s.urgent, &s.waiting} {
		prev := int32(none)
		for i := l.head; i != none; prev, i = i, s.flows[i].waiting {
			if i != f {
				continue
			}
			if prev == none {
				l.head = fl.waiting
			} else {
				s.flows[prev].waiting = fl.waiting
			}
			if l.tail == f {
				l.tail = prev
			}
			return
		}
	}
}

// turn counts what a unit presented of its flow: after its turns the next one in
// line has the unit.
func (s *Shaper) turn(f int32) {
	fl := &s.flows[f]
	fl.turns++
	limit := s.cfg.Tenure
	if s.cfg.Policy == Deficit {
		limit *= fl.Weight
	}
	if fl.turns < limit || fl.unit == none || s.urgent.head == none && s.waiting.head == none {
		return
	}
	u := fl.unit
	s.wait(f)
	s.fill(int(u))
}

// resize changes the number of units. Those that were held by a limit of their own get
// a place too: it may be another limit now.
func (s *Shaper) resize(n int) {
	old := s.units
	for _, f := range old {
		if f != none {
			s.flows[f].unit = none
		}
	}
	s.units, s.since, s.busy = make([]int32, n), make([]uint64, n), 0
	for u := range s.units {
		s.units[u] = none
	}
	for _, f := range old {
		if f != none {
			s.ready(f)
		}
	}
	for u, f := range s.units {
		if f == none {
			s.fill(u)
		}
	}
	for f := range s.flows {
		if s.flows[f].used {
			s.ready(int32(f))
		}
	}
}
