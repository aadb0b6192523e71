package machine

import (
	"errors"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// Acquire gets the exclusive lock of a slot and reads its data under it:
//
//	[CMP_SWAP lock 0 -> tag, READ readers and both copies]
//
// until the lock command finds 0. It waits for readers that were there before;
// new ones see the lock and give way. In a turn that the agent gave, the word is
// reserved, and the lock command compares with the reservation.
type Acquire struct {
	Work
	Tags    *memory.Tagger
	Data    bool   // read the slot's data
	Tries   int    // lock commands and looks at the readers, at most; 0: no limit
	Reading bool   // other readers do not matter
	Token   bool   // draw a fencing token
	From    uint64 // the lock word's value in this client's turn; 0: no turn, the word is free

	state acquireState
	Grant Grant
	Tried int
	bare  bool // the lock command was posted without READs
	lock  int  // of the list
	fence int
}

// ErrTurnOver says that the lock is no longer reserved.
var ErrTurnOver = errors.New("the turn is over")

type acquireState uint8

const (
	acquireIdle acquireState = iota
	acquireAsked
	acquireReading // after a lock command alone
	acquireReaders // waiting for readers, under the lock
	acquireLooked
	acquireHeld
)

func (m *Acquire) Step() (Verdict, error) {
	switch m.state {
	case acquireIdle:
		m.begin()
		m.ask()
		return Post, nil
	case acquireAsked:
		if m.result(m.lock) != m.From {
			m.note(true)
			m.heldBy(m.result(m.lock))
			if m.From != 0 {
				return Done, ErrTurnOver
			}
			m.state = acquireIdle
			return m.again(ErrNotAcquired)
		}
		m.note(false)
		m.Count.Acquired++
		if m.Token {
			m.Grant.Token = m.result(m.fence) + 1
		}
		if m.bare {
			m.begin()
			m.look()
			m.state = acquireReading
			return Post, nil
		}
		return m.readers()
	case acquireReading:
		return m.readers()
	case acquireReaders:
		m.begin()
		m.read(m.L.ReadersOff(m.Grant.Slot), m.L.ReadersAt(), m.L.ReadersSize())
		m.state = acquireLooked
		return Post, nil
	case acquireLooked:
		return m.readers()
	}
	return Done, nil
}

// ask adds lock command and READs to the list.
func (m *Acquire) ask() {
	m.Tried++
	m.Count.Tries++
	m.Grant.tag = m.Tags.Next(m.Reading)
	m.lock = m.cmpSwap(m.L.LockOff(m.Grant.Slot), m.From, m.Grant.tag)
	if m.Token {
		m.fence = m.fetchAdd(m.L.FenceOff(m.Grant.Slot), 1)
	}
	// Behind a lock command that fails the READs are in vain: where the last
	// one failed, they wait for the reply.
	m.bare = m.Missed && !m.Reading
	if !m.bare {
		m.look()
	}
	m.state = acquireAsked
}

// look adds READs of readers and data.
func (m *Acquire) look() {
	if !m.Reading {
		m.read(m.L.ReadersOff(m.Grant.Slot), m.L.ReadersAt(), m.L.ReadersSize())
	}
	if m.Data {
		m.readSlot(m.Grant.Slot)
	}
}

func (m *Acquire) note(failed bool) {
	m.Missed = failed
	if failed {
		m.Count.Failed++
	}
}

// readers ends the acquisition if no readers hold the slot, and otherwise waits for them.
func (m *Acquire) readers() (Verdict, error) {
	if m.Reading || !anyBits(m.Mem[m.L.ReadersAt():][:m.L.ReadersSize()]) {
		m.state = acquireHeld
		return Done, nil
	}
	m.Count.Waits++
	if m.state == acquireLooked {
		m.Tried++
	}
	m.state = acquireReaders
	return m.again(ErrNotAcquired)
}

// again pauses, or ends when that was the last try.
func (m *Acquire) again(err error) (Verdict, error) {
	if m.Tries == 0 || m.Tried < m.Tries {
		return Sleep, nil
	}
	v, _ := m.Undo()
	return v, err
}

// Undo gives back the lock, which may have been acquired.
func (m *Acquire) Undo() (Verdict, error) {
	if m.state == acquireIdle {
		return Done, nil
	}
	m.begin()
	m.release(m.Grant, m.Tags.Owner)
	m.state = acquireIdle
	return Last, nil
}

// anyBits reports whether any bit of some words is set.
func anyBits(b []byte) bool {
	for ; len(b) > 0; b = b[8:] {
		if memory.LoadWord(b, 0) != 0 {
			return true
		}
	}
	return false
}
