package machine

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// AcquireShared gets the shared lock of a slot:
//
//	[FETCH_ADD readers + bit, FETCH_ADD lock + 0]
//
// It is had when the lock word is free, or held by one that only reads. If not,
// the bit is taken back. A writer does it the other way round, lock word first
// and readers second, so that of the two at least one sees the other.
type AcquireShared struct {
	Work
	Tags  *memory.Tagger
	tries int

	held  func() // called when the lock is held, if set
	state sharedState
	Grant Grant
	tried int
	look  int // of the list
}

type sharedState uint8

const (
	sharedIdle sharedState = iota
	sharedAsked
	sharedRefused // the bit is being taken back
	sharedHeld
)

func (m *AcquireShared) Step() (Verdict, error) {
	switch m.state {
	case sharedIdle:
		m.tried++
		m.Count.Tries++
		m.Grant.Shared = true
		m.begin()
		off, bit := m.L.ReaderBit(m.Grant.Slot, m.Tags.Owner)
		m.fetchAdd(off, bit)
		m.look = m.load(m.L.LockOff(m.Grant.Slot))
		m.state = sharedAsked
		return Post, nil
	case sharedAsked:
		holder := m.result(m.look)
		m.heldBy(holder)
		m.Missed = holder != 0 && holder&memory.ReadingTag == 0
		if !m.Missed {
			m.Count.Acquired++
			m.state = sharedHeld
			if m.held != nil {
				m.held()
			}
			return Done, nil
		}
		m.Count.Failed++
		m.begin()
		m.release(m.Grant, m.Tags.Owner)
		m.state = sharedRefused
		if m.tries > 0 && m.tried >= m.tries {
			return Last, ErrNotAcquired
		}
		return Post, nil
	case sharedRefused:
		m.state = sharedIdle
		return Sleep, nil
	}
	return Done, nil
}

func (m *AcquireShared) Undo() (Verdict, error) {
	held := m.state == sharedAsked || m.state == sharedHeld
	m.state = sharedIdle
	if !held {
		return Done, nil
	}
	m.begin()
	m.release(m.Grant, m.Tags.Owner)
	return Last, nil
}
