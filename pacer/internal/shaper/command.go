package shaper

import "time"

// Kind is the kind of a command, as far as pacing distinguishes it.
type Kind uint8

const (
	Get    Kind = iota // its response brings data: sliced, and held by the threshold
	Atomic             // its response brings 8 bytes
	Put                // it takes data away: whole, and held by the outbound budget alone
)

// Command is a request of the host.
type Command struct {
	Kind   Kind
	Length int
	Class  int
	// Fence keeps it behind all GETs and atomics of its flow before it, and
	// everything of the flow that comes later behind it.
	Fence bool
	// Whole keeps a GET in one piece.
	Whole bool
	Tag   uint64 // the driver's
}

// Request is a command that was submitted, until [Shaper.Free].
type Request int32

const none = -1

type command struct {
	Command
	flow   int32
	seq    uint64 // in its flow
	since  time.Duration
	offset int // of a GET: sliced so far

	active  int   // sub-requests outstanding
	sliced  bool  // nothing is left to present
	broken  bool  // something failed and is not issued again
	dropped bool  // cancelled: nothing of it is issued again
	ended   bool  // finished, and told
	failed  int   // sub-requests that wait to be issued again
	next    int32 // in the flow's GETs or PUTs, the finished or the free ones
	nextFen int32
}

// list is a queue through links of its entries: commands through their next, for instance.
type list struct{ head, tail int32 }

// push puts an entry behind all others.
func (l *list) push(entry int32, next func(entry int32) *int32) {
	*next(entry) = none
	if l.head == none {
		l.head = entry
	} else {
		*next(l.tail) = entry
	}
	l.tail = entry
}

// unlink removes an entry, if it is there. next returns the link of an entry.
func (l *list) unlink(entry int32, next func(entry int32) *int32) {
	prev := int32(none)
	for i := l.head; i != none; prev, i = i, *next(i) {
		if i != entry {
			continue
		}
		if prev == none {
			l.head = *next(i)
		} else {
			*next(prev) = *next(i)
		}
		if l.tail == i {
			l.tail = prev
		}
		return
	}
}

// The links of commands, of commands with a fence, of flows in line for a unit, and of pieces that
// wait to be issued again.
func (s *Shaper) nextCommand(c int32) *int32 { return &s.cmds[c].next }
func (s *Shaper) nextFence(c int32) *int32   { return &s.cmds[c].nextFen }
func (s *Shaper) nextInLine(f int32) *int32  { return &s.flows[f].waiting }
func (s *Shaper) nextFailed(i int32) *int32  { return &s.subs[i].next }

// push puts a command behind all others of a list.
func (s *Shaper) push(l *list, c int32) {
	s.cmds[c].next = none
	if l.head == none {
		l.head = c
	} else {
		s.cmds[l.tail].next = c
	}
	l.tail = c
}

func (s *Shaper) pop(l *list) int32 {
	c := l.head
	if c != none {
		l.head = s.cmds[c].next
	}
	return c
}

// Submit puts a command into the queue of its flow. It never waits: [Shaper.Next] returns the
// command when it may go.
func (s *Shaper) Submit(f Flow, c Command, now time.Duration) (Request, error) {
	at, err := s.command(f, &c, now)
	if err == nil {
		s.enqueue(at)
	}
	return Request(at), err
}

// command allocates a place for a command.
func (s *Shaper) command(f Flow, c *Command, now time.Duration) (int32, error) {
	if !s.valid(f) || c.Length < 0 || c.Length > MaxLength || c.Class < 0 || c.Class >= len(s.classes) || c.Kind > Put {
		return none, ErrConfig
	}
	i := s.free.head
	if i == none {
		s.cmds = append(s.cmds, command{})
		i = int32(len(s.cmds) - 1)
	} else {
		s.pop(&s.free)
	}
	cmd := &s.cmds[i]
	*cmd = command{Command: *c, flow: int32(f), since: now, next: none, nextFen: none}
	if c.Kind == Atomic {
		cmd.Length = 8
	}
	s.alive++
	s.pending++
	s.flows[f].commands++
	return i, nil
}

// begin gives a command its place in its flow and class.
func (s *Shaper) begin(c int32) {
	cmd := &s.cmds[c]
	f := &s.flows[cmd.flow]
	f.seq++
	cmd.seq = f.seq
	k := &s.classes[cmd.Class]
	if k.queued == 0 {
		// A class that was idle has no claim on what it did not use.
		k.served = max(k.served, s.current(k.Priority))
	}
	k.queued++
}

// enqueue puts a command behind the others of its flow.
func (s *Shaper) enqueue(c int32) {
	s.begin(c)
	cmd := &s.cmds[c]
	f := &s.flows[cmd.flow]
	if cmd.Kind == Put {
		s.push(&f.puts, c)
	} else {
		s.push(&f.gets, c)
	}
	if cmd.Fence {
		f.fences.push(c, s.nextFence)
	}
	s.ready(cmd.flow)
}

// issued takes a command out of its flow queue, after all of it was presented.
func (s *Shaper) issued(c int32) {
	cmd := &s.cmds[c]
	f := &s.flows[cmd.flow]
	cmd.sliced = true
	s.pending--
	l := &f.gets
	if cmd.Kind == Put {
		l = &f.puts
	}
	l.unlink(c, s.nextCommand)
	s.classes[cmd.Class].queued--
	if cmd.Fence {
		f.fences.unlink(c, s.nextFence)
	}
}

// settle finishes a command that has nothing outstanding and nothing left to do.
func (s *Shaper) settle(c int32) {
	cmd := &s.cmds[c]
	if cmd.ended || !cmd.sliced || cmd.active > 0 || cmd.failed > 0 {
		return
	}
	cmd.ended = true
	s.flows[cmd.flow].commands--
	s.push(&s.finished, c)
}

// Ended reports whether Finished has a request to return.
func (s *Shaper) Ended() bool { return s.finished.head != none }

// Finished returns a request that is over, and whether all of it was executed; ok is false if
// there is none. [Shaper.Free] must be called for each.
func (s *Shaper) Finished() (r Request, tag uint64, complete, ok bool) {
	c := s.pop(&s.finished)
	if c == none {
		return none, 0, false, false
	}
	return Request(c), s.cmds[c].Tag, !s.cmds[c].broken, true
}

// Free gives the place of a finished request back.
func (s *Shaper) Free(r Request) {
	s.alive--
	s.cmds[r].flow = none
	s.push(&s.free, int32(r))
}

// Cancel withdraws the part of a request that has not been granted. The device has the rest: the
// request finishes once that is over. One that has finished stays as it is.
func (s *Shaper) Cancel(r Request) {
	cmd := &s.cmds[r]
	cmd.dropped = true
	cmd.broken = cmd.broken || !cmd.sliced || cmd.failed > 0
	s.forgetFailed(int32(r))
	if !cmd.sliced {
		s.issued(int32(r))
	}
	s.settle(int32(r))
	s.idle(cmd.flow)
}
