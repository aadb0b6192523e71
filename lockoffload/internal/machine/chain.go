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

// compare examines the records of accesses, and returns [ErrVersionMismatch] if one does not have
// the version that it is compared with.
func compare(l *memory.Layout, cur *memory.Current, accesses []Access) (err error) {
	for i := range accesses {
		a := &accesses[i]
		r, damaged := l.Record(cur, a.Record)
		if damaged != nil {
			return damaged
		}
		if a.Kind == wire.AccessCompare && a.Version != r.Version {
			err = ErrVersionMismatch
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
// Its Step is the first one, that of Acquire. Then the caller calls Look, and View if it
// computes what is to be written, and posts the list that End makes, with which the machine
// ends.
//
// The WRITE is posted only when the lock command's result says that the lock was
// acquired: nothing else would hold it back. It goes to the copy that is not current,
// and is the change: a READ that gets all of it may see it.
type Chain struct {
	Acquire
	Accesses []Access
	Version  uint64 // of the last access

	old    memory.Current
	viewed bool
}

// Look examines the records that were read under the lock, and returns [ErrVersionMismatch] if one
// does not have the version that it is compared with.
func (m *Chain) Look() (err error) {
	if m.old, err = m.Decode(); err == nil {
		err = compare(&m.L, &m.old, m.Accesses)
	}
	return err
}

// View sets Version and Data of accesses that read. The data is valid until End. The caller
// then sets the Data of accesses that write; nil leaves a record as it is.
func (m *Chain) View() {
	m.viewed = true
	for i := range m.Accesses {
		if a := &m.Accesses[i]; a.Kind == wire.AccessRead {
			r, _ := m.L.Record(&m.old, a.Record) // examined before
			a.Version, a.Data = r.Version, r.Data
		}
	}
}

// End makes the list of the WRITE and the unlock command. With an error, which it returns,
// and with too much data nothing is written; accesses that read are performed also if a
// compare differs.
func (m *Chain) End(err error) error {
	if m.viewed {
		for i := range m.Accesses {
			switch a := &m.Accesses[i]; {
			case a.Kind == wire.AccessRead:
				a.Data = nil
			case err == nil && len(a.Data) > m.L.Size:
				err = fmt.Errorf("%w: %d bytes of data, records have %d", memory.ErrConfig, len(a.Data), m.L.Size)
			}
		}
	}
	m.begin()
	if err == nil || err == ErrVersionMismatch {
		m.perform(err == nil)
	}
	m.release(m.Grant, m.Tags.Owner)
	return err
}

// Revoke makes the list of the unlock command alone in place of that of End, of which nothing was
// posted.
func (m *Chain) Revoke() {
	m.Wrote = false
	m.Count.TwoStep--
	m.begin()
	m.perform(false)
	m.release(m.Grant, m.Tags.Owner)
}

// perform carries out the accesses in local memory, and adds the WRITE.
func (m *Chain) perform(write bool) {
	now, staged := m.old, false
	for i := range m.Accesses {
		a := &m.Accesses[i]
		if write && a.Kind == wire.AccessWrite && (a.Data != nil || !m.viewed) {
			if !staged {
				m.L.Stage(m.Next(), &m.old)
				staged = true
			}
			was, _ := m.L.Record(&m.old, a.Record) // examined before
			m.L.Put(m.Next(), a.Record, was.Version+1, a.Data)
			now = m.L.Staged(m.Next(), m.old.Version+1)
		}
		r, _ := m.L.Record(&now, a.Record)
		if m.Version = r.Version; m.viewed {
			a.Version = r.Version
		} else {
			a.take(r)
		}
	}
	if staged {
		m.writeSlot(m.Grant.Slot, &m.old)
	}
	if write {
		m.Count.carriedOut(ProtocolTwoStep)
	}
}
