package shaper

import "math/bits"

// Each slicing unit (MCU) is assigned to one flow queue, and presents the request packet that
// the flow could send next. While more flows have something to send than there are
// units, the others wait in line: a unit becomes free when its flow has nothing
// left, is held by a limit of its own, or has had its turns.

// hasWork reports whether a flow has anything that is not granted.
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
	if u, least := s.leastUrgent(); u != none && mine > least {
		s.displace(s.units[u])
		s.assign(u, f)
		return
	}
	s.wait(f)
}

// first returns the command that a flow with something to send could send first.
func (s *Shaper) first(f int32) int32 {
	fl := &s.flows[f]
	if fl.failed.head != none {
		return s.subs[fl.failed.head].cmd
	}
	if fl.gets.head != none {
		return fl.gets.head
	}
	return fl.puts.head
}

// priority returns the priority of the class of a flow's first command, and below that the
// flow's own if the policy is Priority.
func (s *Shaper) priority(f int32) int {
	n := within(s.classes[s.cmds[s.first(f)].Class].Priority) << 22
	if s.cfg.Policy == Priority {
		n += within(s.flows[f].Priority)
	}
	return n
}

func within(priority int) int { return min(max(priority, -1<<20), 1<<20) }

// urgency orders flows that compete for units, all of which have something to send: by priority,
// and then prefers flows that need no large part of the threshold.
func (s *Shaper) urgency(f int32) int {
	n := 2 * s.priority(f)
	if s.flows[f].puts.head != none || s.isSmall(&s.cmds[s.first(f)]) {
		n++
	}
	return n
}

// leastUrgent returns the unit of the least urgent flow that is not due: of equal ones the last
// one in turn.
func (s *Shaper) leastUrgent() (unit, urgency int) {
	unit = none
	for u, f := range s.units {
		n := s.urgency(f)
		if f != s.due && f != s.duePut && (unit == none || n < urgency || n == urgency && s.turns[u] > s.turns[unit]) {
			unit, urgency = u, n
		}
	}
	return unit, urgency
}

func (s *Shaper) assign(u int, f int32) {
	fl := &s.flows[f]
	fl.unit = int32(u)
	s.units[u] = f
	s.busy |= 1 << u
	s.clock++
	s.turns[u] = s.clock
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
	fl.waits = true
	s.line(f).push(f, s.nextInLine)
}

// displace takes the unit from a flow that has not had its turn, and puts the flow at the head
// of the line.
func (s *Shaper) displace(f int32) {
	fl := &s.flows[f]
	s.vacate(int(fl.unit))
	l := s.line(f)
	fl.waits, fl.waiting = true, l.head
	if l.head == none {
		l.tail = f
	}
	l.head = f
}

// line returns the line in which a flow waits for a unit.
func (s *Shaper) line(f int32) *list {
	if s.urgency(f) > 0 {
		return &s.urgent
	}
	return &s.waiting
}

// fill gives a free unit to the flow that waits first: three times of four an urgent one.
// Flows that are not urgent have at most a quarter of the units while
// others wait: arbitration may leave them there for long.
func (s *Shaper) fill(u int) {
	l := &s.urgent
	if l.head == none || s.popped%4 == 3 && s.waiting.head != none && s.patient() < max(len(s.units)/4, 1) {
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

// patient returns how many units have flows that are not urgent, and no class at its cap.
func (s *Shaper) patient() (n int) {
	for u, f := range s.units {
		if f != none && s.present[u].reason != ClassCap && s.urgency(f) <= 0 {
			n++
		}
	}
	return n
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
	fl := &s.flows[f]
	if s.hasWork(f) {
		return
	}
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
		l.unlink(f, s.nextInLine)
	}
}

// turn counts what a unit presented of its flow: after its turn the next flow in line has the
// unit. A turn is a request packet, or bytes under the deficit policy, where an excess counts
// for the next turn. Turns are longer while only lower priorities wait.
func (s *Shaper) turn(f int32, wire int64) {
	fl := &s.flows[f]
	limit := 1.0
	if s.cfg.Policy == Deficit {
		limit = float64(s.round(fl))
	} else {
		wire = 1
	}
	fl.turn += wire
	next := s.urgent.head
	if next == none {
		next = s.waiting.head
	}
	if next == none || fl.unit == none {
		return
	}
	if s.priority(next) < s.priority(f) {
		limit *= lowerWaits
	}
	over := float64(fl.turn) - limit
	if over < 0 {
		return
	}
	fl.turn = int64(min(over, float64(wire-1))) // what went while no flow waited was no turn
	u := fl.unit
	s.wait(f)
	s.fill(int(u))
}

// lowerWaits is how many turns a flow has before a flow of lower priority gets its unit.
const lowerWaits = 16

// resize changes the number of units. Flows that were held by a limit of their own get
// a place too: it may be another limit now.
func (s *Shaper) resize(n int) {
	old := s.units
	for _, f := range old {
		if f != none {
			s.flows[f].unit = none
		}
	}
	s.units, s.turns, s.busy = make([]int32, n), make([]uint64, n), 0
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
