package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// acquireShared gets the shared lock of a slot:
//
//	[FETCH_ADD readers + bit, FETCH_ADD lock + 0]
//
// It is had when the lock word is free, or held by one that only reads. If not,
// the bit is taken back. A writer does it the other way round, lock word first
// and readers second, so that of the two at least one sees the other.
type acquireShared struct {
	work
	tags  *memory.Tagger
	tries int

	held  func() // called when the lock is held, if set
	state sharedState
	grant grant
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

func (m *acquireShared) step() (verdict, error) {
	switch m.state {
	case sharedIdle:
		m.tried++
		m.count.Tries++
		m.grant.shared = true
		m.begin()
		off, bit := m.l.ReaderBit(m.grant.slot, m.tags.Owner)
		m.fetchAdd(off, bit)
		m.look = m.load(m.l.LockOff(m.grant.slot))
		m.state = sharedAsked
		return post, nil
	case sharedAsked:
		holder := m.result(m.look)
		m.missed = holder != 0 && holder&memory.ReadingTag == 0
		if !m.missed {
			m.count.Acquired++
			m.state = sharedHeld
			if m.held != nil {
				m.held()
			}
			return done, nil
		}
		m.count.Failed++
		m.begin()
		m.release(m.grant, m.tags.Owner)
		m.state = sharedRefused
		if m.tries > 0 && m.tried >= m.tries {
			return last, ErrNotAcquired
		}
		return post, nil
	case sharedRefused:
		m.state = sharedIdle
		return sleep, nil
	}
	return done, nil
}

func (m *acquireShared) undo() (verdict, error) {
	held := m.state == sharedAsked || m.state == sharedHeld
	m.state = sharedIdle
	if !held {
		return done, nil
	}
	m.begin()
	m.release(m.grant, m.tags.Owner)
	return last, nil
}
