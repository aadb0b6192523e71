package lockoffload

import "time"

// ticketWatch is the target's help for the queue of tickets: it passes on tickets that
// are marked, and those whose owner did not put down whose they are for a lease.
type ticketWatch struct {
	lease time.Duration
	seen  map[int]served
}

// served is a ticket whose owner is not known.
type served struct {
	ticket uint32
	since  time.Time
}

// look answers what is to be done about a slot, if anything. entry is the word of the
// ticket that is being served, living tells whether the owner of a tag has a session.
func (t *ticketWatch) look(now time.Time, slot int, word, entry uint64, living func(tag uint64) bool) machine {
	next, serving := tickets(word)
	switch {
	case next == serving:
		delete(t.seen, slot)
		return nil
	case int32(next-serving) < 0:
		delete(t.seen, slot)
		return &ticketMender{slot: slot, word: word}
	case entry == skipMark(serving):
	case uint32(entry) == serving && living(entry):
		delete(t.seen, slot)
		return nil
	default:
		if was, ok := t.seen[slot]; !ok || was.ticket != serving {
			t.seen[slot] = served{serving, now}
			return nil
		} else if now.Sub(was.since) < t.lease {
			return nil
		}
	}
	delete(t.seen, slot)
	return &skipper{slot: slot, ticket: serving, seen: entry}
}

// ticketMender sets the next ticket to the one that is being served, where that one has
// not been drawn yet: its owner was merely slow when it was skipped, and passed it on
// too. Whoever draws meanwhile finds out by itself.
type ticketMender struct {
	work
	slot   int
	word   uint64
	posted bool
}

func (m *ticketMender) step() (verdict, error) {
	if m.posted {
		return done, nil
	}
	m.begin()
	_, serving := tickets(m.word)
	m.cmpSwap(m.l.ticketOff(m.slot), m.word, uint64(serving)<<32|uint64(serving))
	m.posted = true
	return post, nil
}

func (m *ticketMender) undo() (verdict, error) { return done, nil }

// skipper passes on a ticket that is marked, or whose owner never put down
// whose it is, when it is being served.
type skipper struct {
	work
	slot    int
	ticket  uint32
	seen    uint64 // the entry: 0 or the mark
	marked  bool
	passed  bool
	skipped int
}

func (m *skipper) step() (verdict, error) {
	switch {
	case !m.marked:
		m.begin()
		off := m.l.queueOff(m.slot, m.ticket)
		if m.seen != skipMark(m.ticket) {
			m.cmpSwap(off, m.seen, skipMark(m.ticket))
		}
		m.skipped = m.cmpSwap(off, skipMark(m.ticket), 0)
		m.marked = true
		return post, nil
	case !m.passed:
		taken := m.result(m.skipped) == skipMark(m.ticket)
		m.begin()
		m.passed = true
		if !taken {
			return done, nil
		}
		m.fetchAdd(m.l.ticketOff(m.slot), passTicket(m.ticket))
		return post, nil
	}
	return done, nil
}

func (m *skipper) undo() (verdict, error) { return done, nil }
