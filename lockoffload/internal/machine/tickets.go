package machine

import (
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// TicketWatch is the target's help for queues of tickets: it passes on the ticket that is
// being served when that is marked, and marks tickets that nobody signed, a lease after
// they were drawn. A ticket is signed when its owner has put down in the queue whose it
// is, which takes one round trip more.
//
// A client that dies in between leaves tickets that nobody can tell to be its own. So when
// sessions end the watch is told how far tickets were drawn by then, and a lease later it
// marks all that are still not signed, together: those who wait behind many of them
// do not wait a lease for each. An owner that was merely slow draws another one.
type TicketWatch struct {
	l      *memory.Layout
	scan   memory.Scan
	region []byte
	lease  time.Duration
	Drawn  map[int][]drawn // by slot, of queues that are to be looked at
	told   map[int]uint32  // by slot, the ticket behind the last one that was counted as skipped
}

// drawn says that the tickets before one had been drawn at a time.
type drawn struct {
	before uint32
	at     time.Time
}

func NewTicketWatch(l *memory.Layout, region []byte, lease time.Duration) *TicketWatch {
	return &TicketWatch{l: l, scan: l.Scan(), region: region, lease: lease, Drawn: map[int][]drawn{}, told: map[int]uint32{}}
}

// Count answers how many tickets were skipped by marks that were made. One is marked
// again when a client has taken the mark off, and has not passed the ticket on yet.
func (t *TicketWatch) Count(m *Marker) (n int) {
	for _, ticket := range m.marked {
		if told, ok := t.told[m.slot]; !ok || int32(ticket-told) >= 0 {
			t.told[m.slot] = ticket + 1
			n++
		}
	}
	return n
}

// Note remembers how far tickets were drawn.
func (t *TicketWatch) Note(now time.Time, slot int, next uint32) {
	notes := t.Drawn[slot]
	if n := len(notes); n == 0 || notes[n-1].before != next {
		t.Drawn[slot] = append(notes, drawn{next, now})
	}
}

// Queue is the first slot, of those before end, in which there is something to be looked
// at besides those that are in Drawn; end if there is none.
func (t *TicketWatch) Queue(slot, end int) int { return t.scan.Queued(t.region, slot, end) }

// Look answers what is to be done next about a slot, if anything. living tells whether
// the owner of a tag has a session.
func (t *TicketWatch) Look(now time.Time, slot int, living func(tag uint64) bool) Machine {
	word := memory.LoadWord(t.region, t.l.TicketOff(slot))
	next, serving := memory.Tickets(word)
	if int32(next-serving) <= 0 {
		delete(t.Drawn, slot)
		if next == serving {
			return nil
		}
		return &ticketMender{slot: slot, word: word}
	}
	if memory.LoadWord(t.region, t.l.QueueOff(slot, serving)) == memory.SkipMark(serving) {
		return &skipper{slot: slot, ticket: serving}
	}
	notes := t.Drawn[slot]
	for len(notes) > 0 && now.Sub(notes[0].at) >= t.lease {
		if m := t.unsigned(slot, serving, notes[0].before, living); m != nil {
			return m
		}
		notes = notes[1:]
	}
	t.Drawn[slot] = notes
	if len(notes) == 0 {
		delete(t.Drawn, slot)
		if t.unsigned(slot, serving, next, living) != nil {
			t.Note(now, slot, t.l.Signable(next, serving))
		}
	}
	return nil
}

// unsigned answers what marks the tickets that nobody signed, if there are any.
func (t *TicketWatch) unsigned(slot int, serving, before uint32, living func(tag uint64) bool) *Marker {
	m := &Marker{slot: slot}
	for i := 0; i < t.l.Places() && len(m.marks) < memory.LocalWords; i++ { // beyond, places come again
		ticket := serving + uint32(i)
		if int32(before-ticket) <= 0 {
			break
		}
		entry := memory.LoadWord(t.region, t.l.QueueOff(slot, ticket))
		switch {
		case entry == memory.SkipMark(ticket):
		case uint32(entry) == ticket && living(entry):
		case i > 0 && (memory.IsSkipMark(entry) || entry != 0 && living(entry)): // another ticket has the place
		default:
			m.marks = append(m.marks, mark{ticket, entry})
		}
	}
	if len(m.marks) == 0 {
		return nil
	}
	return m
}

// ticketMender sets the next ticket to the one that is being served, where that one has
// not been drawn yet: its owner was merely slow when it was skipped, and passed it on
// too. Whoever draws meanwhile finds out by itself.
type ticketMender struct {
	Work
	slot   int
	word   uint64
	posted bool
}

func (m *ticketMender) Step() (Verdict, error) {
	if m.posted {
		return Done, nil
	}
	m.begin()
	_, serving := memory.Tickets(m.word)
	m.cmpSwap(m.L.TicketOff(m.slot), m.word, uint64(serving)<<32|uint64(serving))
	m.posted = true
	return Post, nil
}

func (m *ticketMender) Undo() (Verdict, error) { return Done, nil }

// Marker marks tickets that are to be skipped.
type Marker struct {
	Work
	slot   int
	marks  []mark
	posted bool
	marked []uint32 // tickets
}

type mark struct {
	ticket uint32
	seen   uint64 // in its place
}

func (m *Marker) Step() (Verdict, error) {
	if m.posted {
		for i := range m.marks {
			if m.result(i) == m.marks[i].seen {
				m.marked = append(m.marked, m.marks[i].ticket)
			}
		}
		return Done, nil
	}
	m.begin()
	for _, k := range m.marks {
		m.cmpSwap(m.L.QueueOff(m.slot, k.ticket), k.seen, memory.SkipMark(k.ticket))
	}
	m.posted = true
	return Post, nil
}

func (m *Marker) Undo() (Verdict, error) { return Done, nil }

// skipper passes on a ticket that is marked, when it is being served.
type skipper struct {
	Work
	slot   int
	ticket uint32
	taken  bool // the mark was tried to be taken off
	passed bool
}

func (m *skipper) Step() (Verdict, error) {
	switch {
	case !m.taken:
		m.begin()
		m.cmpSwap(m.L.QueueOff(m.slot, m.ticket), memory.SkipMark(m.ticket), 0)
		m.taken = true
		return Post, nil
	case !m.passed && m.result(0) == memory.SkipMark(m.ticket): // else somebody else passes it on
		m.begin()
		m.fetchAdd(m.L.TicketOff(m.slot), memory.PassTicket(m.ticket))
		m.passed = true
		return Post, nil
	}
	return Done, nil
}

func (m *skipper) Undo() (Verdict, error) { return Done, nil }
