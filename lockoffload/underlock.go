package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// loader reads a slot's data under a lock that is held.
type loader struct {
	work
	slot    int
	deliver func(memory.Current) error // gets what is valid until it returns
	posted  bool
}

func (m *loader) step() (verdict, error) {
	if !m.posted {
		m.begin()
		m.readSlot(m.slot)
		m.posted = true
		return post, nil
	}
	cur, err := m.decode()
	if err == nil {
		err = m.deliver(cur)
	}
	return done, err
}

func (m *loader) undo() (verdict, error) { return done, nil }

// committer writes what was staged under a lock, and keeps it.
type committer struct {
	work
	slot   int
	old    *memory.Current
	posted bool
}

func (m *committer) step() (verdict, error) {
	if m.posted {
		return done, nil
	}
	m.begin()
	m.writeSlot(m.slot, m.old)
	m.posted = true
	return post, nil
}

func (m *committer) undo() (verdict, error) { return done, nil }

// releaser writes what was staged under a lock, if anything was, and gives the lock
// back:
//
//	[WRITE, CMP_SWAP lock tag -> 0]
//
// Everything that a holder changes is in one WRITE: readers, who take no lock, never
// see the inside of a critical section, unless it commits some of it before.
type releaser struct {
	work
	grant   grant
	owner   uint16
	old     *memory.Current // what is current, if there is something to be written
	allowed func() error    // whether it still may be
	wrote   bool
}

func (m *releaser) step() (verdict, error) {
	m.begin()
	var err error
	if m.old != nil {
		if err = m.allowed(); err == nil {
			m.writeSlot(m.grant.slot, m.old)
			m.wrote = true
		}
	}
	m.release(m.grant, m.owner)
	return last, err
}

func (m *releaser) undo() (verdict, error) { return done, nil }
