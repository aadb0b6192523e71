package machine

import (
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// Access is what a chain does to one record. Afterwards version is that of the
// record: of what was read, of what was written, or the one that a compare found.
type Access struct {
	Kind    wire.AccessKind
	Record  int
	Version uint64 // that a compare wants
	Data    []byte // what to write, or where what was read is appended
}

// Chain carries out a chain without an agent, as [Updater] does a change.
// A chain that only reads takes the lock with a tag that says so.
type Chain struct {
	Acquire
	Accesses []Access
	Allowed  func() error

	Version uint64 // of the last access
	Wrote   bool
}

func (m *Chain) Step() (Verdict, error) {
	v, err := m.Acquire.Step()
	if v != Done || err != nil {
		return v, err
	}
	old, err := m.Decode()
	if err == nil && !m.Reading {
		err = m.Allowed()
	}
	m.begin()
	if err == nil {
		err = m.perform(&old)
	}
	m.release(m.Grant, m.Tags.Owner)
	return Last, err
}

// perform does in local memory what the chain says, and adds the WRITE.
func (m *Chain) perform(old *memory.Current) error {
	var differs error
	for i := range m.Accesses {
		a := &m.Accesses[i]
		r, err := m.L.Record(old, a.Record)
		if err != nil {
			return err
		}
		if a.Kind == wire.AccessCompare && a.Version != r.Version {
			differs = ErrDiffers
		}
	}
	now := *old
	m.L.Stage(m.Next(), old)
	for i := range m.Accesses {
		a := &m.Accesses[i]
		was, _ := m.L.Record(old, a.Record) // looked at above
		if a.Kind == wire.AccessWrite && differs == nil {
			m.L.Put(m.Next(), a.Record, was.Version+1, a.Data)
			now = m.L.Staged(m.Next(), old.Version+1)
			m.Wrote = true
		}
		r, _ := m.L.Record(&now, a.Record)
		if a.Kind == wire.AccessRead {
			a.Data = append(a.Data[:0], r.Data...)
		}
		a.Version, m.Version = r.Version, r.Version
	}
	if m.Wrote {
		m.writeSlot(m.Grant.Slot, old)
	}
	if differs == nil {
		m.Count.carriedOut(m.Form())
	}
	return differs
}

func (m *Chain) Form() Form {
	if m.Reading {
		return FormReadHeld
	}
	return FormTwoStep
}
