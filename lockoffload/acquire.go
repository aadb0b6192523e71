package lockoffload

import (
	"errors"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// acquire gets the exclusive lock of a slot and reads its data under it:
//
//	[CMP_SWAP lock 0 -> tag, READ readers and both copies]
//
// until the lock command finds 0. Readers that were there before are waited
// for; new ones see the lock and give way. With queue it first waits for the
// turn of a ticket. In a turn that the agent gave, the word is reserved, and the lock
// command compares with that.
type acquire struct {
	work
	tags    *memory.Tagger
	data    bool   // read the slot's data
	tries   int    // lock commands and looks at the readers, at most; 0: no limit
	reading bool   // other readers do not matter
	token   bool   // draw a fencing token
	from    uint64 // what the lock word has in our turn; 0: nothing, it is free

	queue *queue
	state acquireState
	grant grant
	tried int
	bare  bool // the lock command was posted without READs
	lock  int  // of the list
	fence int
}

// errTurnOver says that the lock is reserved no more.
var errTurnOver = errors.New("the turn is over")

type acquireState uint8

const (
	acquireIdle acquireState = iota
	acquireAsked
	acquireReading // after a lock command alone
	acquireReaders // waiting for readers, under the lock
	acquireLooked
	acquireHeld
)

func (m *acquire) step() (verdict, error) {
	switch m.state {
	case acquireIdle:
		if m.queue != nil && !m.queue.turn {
			return m.queueStep()
		}
		m.begin()
		m.ask()
		return post, nil
	case acquireAsked:
		if m.result(m.lock) != m.from {
			m.note(true)
			if m.from != 0 {
				return done, errTurnOver
			}
			m.state = acquireIdle
			return m.again(ErrNotAcquired)
		}
		m.note(false)
		m.count.Acquired++
		if m.token {
			m.grant.token = m.result(m.fence) + 1
		}
		if m.bare {
			m.begin()
			m.look()
			m.state = acquireReading
			return post, nil
		}
		return m.readers()
	case acquireReading:
		return m.readers()
	case acquireReaders:
		m.begin()
		m.read(m.l.ReadersOff(m.grant.slot), m.l.ReadersAt(), m.l.ReadersSize())
		m.state = acquireLooked
		return post, nil
	case acquireLooked:
		return m.readers()
	}
	return done, nil
}

// ask adds lock command and READs to the list.
func (m *acquire) ask() {
	m.tried++
	m.count.Tries++
	m.grant.tag = m.tags.Next(m.reading)
	m.lock = m.cmpSwap(m.l.LockOff(m.grant.slot), m.from, m.grant.tag)
	if m.token {
		m.fence = m.fetchAdd(m.l.FenceOff(m.grant.slot), 1)
	}
	// Behind a lock command that fails the READs are in vain: where the last
	// one failed, they wait for the reply.
	m.bare = m.missed && !m.reading
	if !m.bare {
		m.look()
	}
	m.state = acquireAsked
}

// look adds READs of readers and data.
func (m *acquire) look() {
	if !m.reading {
		m.read(m.l.ReadersOff(m.grant.slot), m.l.ReadersAt(), m.l.ReadersSize())
	}
	if m.data {
		m.readSlot(m.grant.slot)
	}
}

func (m *acquire) note(failed bool) {
	m.missed = failed
	if failed {
		m.count.Failed++
	}
}

// readers looks whether readers hold the slot.
func (m *acquire) readers() (verdict, error) {
	if m.reading || !anyBits(m.mem[m.l.ReadersAt():][:m.l.ReadersSize()]) {
		m.state = acquireHeld
		return done, nil
	}
	m.count.Waits++
	if m.state == acquireLooked {
		m.tried++
	}
	m.state = acquireReaders
	return m.again(ErrNotAcquired)
}

// again pauses, or ends when that was the last try.
func (m *acquire) again(err error) (verdict, error) {
	if m.tries == 0 || m.tried < m.tries {
		return sleep, nil
	}
	v, _ := m.undo() // in one list: the turn of a ticket has come
	return v, err
}

// undo gives back what may have been got.
func (m *acquire) undo() (verdict, error) {
	if m.queue != nil && !m.queue.turn {
		return m.queueLeave()
	}
	if m.state == acquireIdle && m.queue == nil {
		return done, nil
	}
	m.begin()
	m.release(m.grant, m.tags.Owner)
	m.back = -1 // whether it was held or not
	m.state, m.queue = acquireIdle, nil
	return last, nil
}

func anyBits(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return true
		}
	}
	return false
}
