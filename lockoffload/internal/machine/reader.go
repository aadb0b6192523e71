package machine

import (
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// Reader reads records of a slot.
//
// Without a lock that is one READ of both copies, again while it meets a WRITE. It is
// safe because nothing is ever written under a lock that is not committed by the WRITE
// itself, see Chain and Releaser: a copy that is valid was current, or is.
//
// A reader requires both copies to be valid and takes the one with the higher version x. That is
// right in whatever order the bytes of READs and WRITEs move:
//
//   - Changes of a slot follow each other. The next one is written by the holder of a lock that
//     was given back after the last one, and a target executes WRITEs and atomics of a queue pair
//     in the order in which they came (InfiniBand specification, chapter 9.5, transaction
//     ordering).
//   - x is current from the moment when the last byte of its copy is there until the moment when
//     the last byte of x+1 is there, which goes to the other copy.
//   - All bytes of x were there when the READ ended. The other copy, valid and older, was seen
//     before all of x+1 was there. So x was current at some moment of the READ.
//
// A read chain does the same under a lock command and its unlock command, posted at
// once:
//
//	[CMP_SWAP lock 0 -> tag, READ, CMP_SWAP lock tag -> 0]
//
// A device may execute the READ after the unlock command. So in either form both
// copies must be valid, or the slot is read again, at last under a lock that is given
// back when the READ is complete:
//
//	[CMP_SWAP lock 0 -> tag, READ]   [CMP_SWAP lock tag -> 0]
//
// A copy that a dead holder's WRITE left in pieces may look whole to a READ that sees
// some of it early, and the rest in what the next holder writes. So the recovery
// clears the head of such a copy, and gives the lock back when all READs are over
// that may have seen it: those that take longer than ReadTime are thrown away.
type Reader struct {
	Acquire           // of the held form; all forms use its Work
	Accesses []Access // which read and compare
	Protocol Protocol
	posted   bool // a READ, or a chain, is under way
	Reads    int  // without a lock
	Version  uint64
	InTime   time.Duration // how long a READ without a lock may take; 0: as long as it likes. See ReadTime
}

// How often a READ without a lock may meet a WRITE. After that there may be one that will
// never be finished.
const maxReads = 4

func (m *Reader) Step() (Verdict, error) {
	switch m.Protocol {
	case ProtocolReadChain:
		return m.chain()
	case ProtocolReadLocked:
		v, err := m.Acquire.Step()
		if v != Done || err != nil {
			return v, err
		}
		cur, err := m.Decode()
		if err == nil {
			err = m.take(&cur)
		}
		m.begin()
		m.release(m.Grant, m.Tags.Owner)
		return Last, err
	}
	if !m.posted {
		m.Reads++
		m.begin()
		m.readSlot(m.Grant.Slot)
		m.posted = true
		return Post, nil
	}
	m.posted = false
	return m.judge()
}

func (m *Reader) chain() (Verdict, error) {
	if !m.posted {
		m.begin()
		m.ask()
		m.release(m.Grant, m.Tags.Owner)
		m.posted = true
		return Post, nil
	}
	m.posted = false
	holder := m.result(m.lock)
	m.note(holder != 0)
	if holder != 0 {
		m.heldBy(holder)
		if m.Tries > 0 && m.Tried >= m.Tries {
			return Done, ErrNotAcquired
		}
		return Sleep, nil
	}
	m.Count.Acquired++
	if err := m.Settled(); err != nil {
		return Done, err
	}
	return m.judge()
}

// judge checks data that was read without a lock, or perhaps after the unlock command.
func (m *Reader) judge() (Verdict, error) {
	cur, err := m.Decode()
	if err == nil && cur.Whole && !m.late() {
		return Done, m.take(&cur)
	}
	m.Count.Torn++
	if m.Protocol == ProtocolReadChain || m.Reads >= maxReads {
		m.Protocol, m.state = ProtocolReadLocked, acquireIdle
	}
	return m.Step()
}

// late reports whether the READ may have seen data both from before a recovery and from
// after it.
func (m *Reader) late() bool { return m.InTime > 0 && m.Took > m.InTime }

// ReadTime returns how long a READ without a lock may take for clients with a lease; 0:
// they have none.
func ReadTime(lease time.Duration) time.Duration {
	const most = 100 * time.Millisecond
	if lease <= 0 {
		return most
	}
	return min(lease/4, most)
}

// take performs the accesses, also if a compare differs.
func (m *Reader) take(cur *memory.Current) error {
	m.Count.carriedOut(m.Protocol)
	err := compare(&m.L, cur, m.Accesses)
	if err != nil && err != ErrVersionMismatch {
		return err
	}
	for i := range m.Accesses {
		a := &m.Accesses[i]
		r, _ := m.L.Record(cur, a.Record) // examined before
		a.take(r)
		m.Version = r.Version
	}
	return err
}

func (m *Reader) Undo() (Verdict, error) {
	if m.Protocol == ProtocolReadLocked {
		return m.Acquire.Undo()
	}
	return Done, nil // a chain undoes itself
}
