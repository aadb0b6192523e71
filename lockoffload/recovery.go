package lockoffload

// recovery takes back what a session left behind, after its queue pair was
// moved to where nothing late can execute. It is stepped by the target, whose
// own queue pair executes the lists: the lock of each slot that carries the
// session's tag, its bit among the readers, its tickets.
type recovery struct {
	work
	identity uint64 // owner 16 | epoch 16
	// peek is a plain load of a word of the region. What it sees of the dead
	// session stays, since nobody else changes that.
	peek func(off int) uint64

	slot  int
	freed int // locks, bits and tickets
}

func (m *recovery) step() (verdict, error) {
	for ; m.slot < m.l.Slots; m.slot++ {
		m.begin()
		m.collect()
		if len(m.ops) > 0 {
			m.freed += len(m.ops)
			return post, nil // and look at the slot again
		}
	}
	return done, nil
}

func (m *recovery) undo() (verdict, error) { return done, nil }

// collect adds what is to be taken back in the slot.
func (m *recovery) collect() {
	lock := m.l.lockOff(m.slot)
	owner := uint16(m.identity >> 16)
	if tag := m.peek(lock); tagIdentity(tag) == m.identity {
		m.cmpSwap(lock, tag, 0)
	}
	if off, bit := m.l.readerBit(m.slot, owner); m.peek(off)&bit != 0 {
		m.fetchAdd(off, -bit)
	}
	next, serving := tickets(m.peek(m.l.ticketOff(m.slot)))
	if next == serving {
		return
	}
	for i := range m.l.Clients {
		off := m.l.queueOff(m.slot, uint32(i))
		if entry := m.peek(off); tagIdentity(entry) == m.identity && m.word < workWords {
			m.cmpSwap(off, entry, skipMark(uint32(entry)))
		}
	}
}

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
