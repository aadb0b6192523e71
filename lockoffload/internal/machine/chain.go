package machine

import (
	"fmt"

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

// compare examines the records of accesses, and returns [ErrDiffers] if one does not have
// the version that it is compared with.
func compare(l *memory.Layout, cur *memory.Current, accesses []Access) (err error) {
	for i := range accesses {
		a := &accesses[i]
		r, damaged := l.Record(cur, a.Record)
		if damaged != nil {
			return damaged
		}
		if a.Kind == wire.AccessCompare && a.Version != r.Version {
			err = ErrDiffers
		}
	}
	return err
}

// take copies a record's version and, if the access reads, its data.
func (a *Access) take(r memory.Content) {
	a.Version = r.Version
	if a.Kind == wire.AccessRead {
		a.Data = append(a.Data[:0], r.Data...)
	}
}

// Chain changes records of a slot in two steps:
//
//	[CMP_SWAP lock 0 -> tag, READ readers and both copies]   compute   [WRITE, CMP_SWAP lock tag -> 0]
//
// The WRITE is posted only when the lock command's result says that the lock was
// acquired: nothing else would hold it back. It goes to the copy that is not current,
// and is the change: a READ that gets all of it may see it.
type Chain struct {
	Acquire
	Accesses []Access
	// Change sets the Data of accesses that write; nil leaves a record as it is. The
	// Data of those that read is valid until it returns. It is called if no compare
	// differs, and may be nil.
	Change func([]Access) error
	// Allowed returns an error unless WRITEs may still be posted under the session's lease.
	Allowed func() error

	Version uint64 // of the last access
}

func (m *Chain) Step() (Verdict, error) {
	v, err := m.Acquire.Step()
	if v != Done || err != nil {
		return v, err
	}
	old, err := m.Decode()
	if err == nil {
		err = compare(&m.L, &old, m.Accesses)
	}
	if err == nil && m.Change != nil {
		err = m.compute(&old)
	}
	if err == nil {
		err = m.Allowed()
	}
	m.begin()
	if err == nil || err == ErrDiffers {
		m.perform(&old, err == nil)
	}
	m.release(m.Grant, m.Tags.Owner)
	return Last, err
}

func (m *Chain) compute(old *memory.Current) error {
	for i := range m.Accesses {
		if a := &m.Accesses[i]; a.Kind == wire.AccessRead {
			r, _ := m.L.Record(old, a.Record) // examined before
			a.Version, a.Data = r.Version, r.Data
		}
	}
	err := m.Change(m.Accesses)
	for i := range m.Accesses {
		switch a := &m.Accesses[i]; {
		case a.Kind == wire.AccessRead:
			a.Data = nil
		case err == nil && len(a.Data) > m.L.Size:
			err = fmt.Errorf("%w: %d bytes of data, records have %d", memory.ErrConfig, len(a.Data), m.L.Size)
		}
	}
	return err
}

// perform carries out the accesses in local memory, and adds the WRITE.
func (m *Chain) perform(old *memory.Current, write bool) {
	now, staged := *old, false
	for i := range m.Accesses {
		a := &m.Accesses[i]
		if write && a.Kind == wire.AccessWrite && (a.Data != nil || m.Change == nil) {
			if !staged {
				m.L.Stage(m.Next(), old)
				staged = true
			}
			was, _ := m.L.Record(old, a.Record) // examined before
			m.L.Put(m.Next(), a.Record, was.Version+1, a.Data)
			now = m.L.Staged(m.Next(), old.Version+1)
		}
		r, _ := m.L.Record(&now, a.Record)
		if m.Version = r.Version; m.Change == nil {
			a.take(r)
		} else {
			a.Version = r.Version
		}
	}
	if staged {
		m.writeSlot(m.Grant.Slot, old)
	}
	if write {
		m.Count.carriedOut(ProtocolTwoStep)
	}
}
