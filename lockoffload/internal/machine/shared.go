package machine

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// AcquireShared gets the shared lock of a slot:
//
//	[FETCH_ADD readers + bit, FETCH_ADD lock + 0]
//
// It is had when the lock word is free, or held by one that only reads. If not,
// the bit is taken back. A writer does it the other way round, lock word first
// and readers second, so that of the two at least one sees the other.
//
// A client that has no bit among the readers takes the lock word, as [Acquire], with the tag
// of a holder that only reads. Readers with bits go together with such a holder, and writers
// find the word taken. So of the clients without a bit one at a time has the lock.
type AcquireShared struct {
	Acquire
	state sharedState
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
	m.Grant.Shared = true
	if !m.L.HasReaderBit(m.Tags.Owner) {
		m.Grant.word, m.Reading = true, true
		return m.Acquire.Step()
	}
	switch m.state {
	case sharedIdle:
		m.Tried++
		m.Count.Tries++
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
			return Done, nil
		}
		m.Count.Failed++
		m.begin()
		m.release(m.Grant, m.Tags.Owner)
		m.state = sharedRefused
		if m.Tries > 0 && m.Tried >= m.Tries {
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
	if m.Grant.word {
		return m.Acquire.Undo()
	}
	held := m.state == sharedAsked || m.state == sharedHeld
	m.state = sharedIdle
	if !held {
		return Done, nil
	}
	m.begin()
	m.release(m.Grant, m.Tags.Owner)
	return Last, nil
}
