package machine

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// Once executes one list, which leaves nothing to be undone.
type Once struct {
	Work
	posted bool
}

func (m *Once) Step() (Verdict, error) {
	if m.posted {
		return Done, nil
	}
	m.posted = true
	return Post, nil
}

func (m *Once) Undo() (Verdict, error) { return Done, nil }

// Load makes the list of a READ of a slot's data, for the holder of its lock: see Decode.
func (m *Once) Load(slot int) {
	m.begin()
	m.readSlot(slot)
}

// Commit makes the list of a WRITE of the copy that was staged, for the holder of the lock.
func (m *Once) Commit(slot int, old *memory.Current) {
	m.begin()
	m.writeSlot(slot, old)
}

// Settle makes the list of a READ of a word. A queue pair that was reset takes no more
// requests, but what it was writing may still be on its way through the bus, and a READ of
// the device pushes it in front of itself.
func (w *Work) Settle() {
	w.begin()
	w.read(w.L.LockOff(0), 0, 8)
}

// Releaser writes the copy that was staged under a lock, if there is one, and gives the
// lock back:
//
//	[WRITE, CMP_SWAP lock tag -> 0]
//
// All changes of a holder are in one WRITE: readers, which take no lock, never see the
// inside of a critical section, unless the holder commits some of it before.
type Releaser struct {
	Work
	Grant Grant
	Owner uint16
	Old   *memory.Current // what is current, if there is something to be written
}

func (m *Releaser) Step() (Verdict, error) {
	m.begin()
	if m.Old != nil {
		m.writeSlot(m.Grant.Slot, m.Old)
	}
	m.release(m.Grant, m.Owner)
	return Last, nil
}

// Revoke makes the list of the unlock command alone in place of that of Step, of which nothing was
// posted.
func (m *Releaser) Revoke() {
	m.Old, m.Wrote = nil, false
	_, _ = m.Step()
}

func (m *Releaser) Undo() (Verdict, error) { return Done, nil }
