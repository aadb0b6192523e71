package machine

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// Loader reads a slot's data under a lock that is held.
type Loader struct {
	Work
	Slot    int
	Deliver func(memory.Current) error // gets what is valid until it returns
	posted  bool
}

func (m *Loader) Step() (Verdict, error) {
	if !m.posted {
		m.begin()
		m.readSlot(m.Slot)
		m.posted = true
		return Post, nil
	}
	cur, err := m.Decode()
	if err == nil {
		err = m.Deliver(cur)
	}
	return Done, err
}

func (m *Loader) Undo() (Verdict, error) { return Done, nil }

// Committer writes the copy that was staged under a lock, and keeps the lock.
type Committer struct {
	Work
	Slot   int
	Old    *memory.Current
	posted bool
}

func (m *Committer) Step() (Verdict, error) {
	if m.posted {
		return Done, nil
	}
	m.begin()
	m.writeSlot(m.Slot, m.Old)
	m.posted = true
	return Post, nil
}

func (m *Committer) Undo() (Verdict, error) { return Done, nil }

// Releaser writes the copy that was staged under a lock, if there is one, and gives the
// lock back:
//
//	[WRITE, CMP_SWAP lock tag -> 0]
//
// All changes of a holder are in one WRITE: readers, which take no lock, never see the
// inside of a critical section, unless the holder commits some of it before.
type Releaser struct {
	Work
	Grant   Grant
	Owner   uint16
	Old     *memory.Current // what is current, if there is something to be written
	Allowed func() error    // returns an error unless it still may be
}

func (m *Releaser) Step() (Verdict, error) {
	m.begin()
	var err error
	if m.Old != nil {
		if err = m.Allowed(); err == nil {
			m.writeSlot(m.Grant.Slot, m.Old)
		}
	}
	m.release(m.Grant, m.Owner)
	return Last, err
}

func (m *Releaser) Undo() (Verdict, error) { return Done, nil }
