package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// reader reads records of a slot.
//
// Without a lock that is one READ of both copies, again while it meets a WRITE. It is
// safe because nothing is ever written under a lock that is not committed by the WRITE
// itself, see updater and held: a copy that is valid was current, or is.
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
type reader struct {
	acquire // of the held form; its work is everybody's
	records []int
	form    Form
	posted  bool // a READ, or a chain, is under way
	reads   int  // without a lock
	version uint64
	// deliver gets the i-th record.
	deliver func(i int, r memory.Content) error
}

// How often a READ without a lock may meet a WRITE. After that there may be one that
// nobody will finish.
const mostReads = 4

func (m *reader) step() (verdict, error) {
	switch m.form {
	case FormReadChain:
		return m.chain()
	case FormReadHeld:
		v, err := m.acquire.step()
		if v != done || err != nil {
			return v, err
		}
		cur, err := m.decode()
		if err == nil {
			err = m.take(&cur)
		}
		m.begin()
		m.release(m.grant, m.tags.Owner)
		return last, err
	}
	if !m.posted {
		m.reads++
		m.begin()
		m.readSlot(m.grant.slot)
		m.posted = true
		return post, nil
	}
	m.posted = false
	return m.judge()
}

func (m *reader) chain() (verdict, error) {
	if !m.posted {
		m.begin()
		m.ask()
		m.release(m.grant, m.tags.Owner)
		m.posted = true
		return post, nil
	}
	m.posted = false
	holder := m.result(m.lock)
	m.note(holder != 0)
	if holder != 0 {
		if m.tries > 0 && m.tried >= m.tries {
			return done, ErrNotAcquired
		}
		return sleep, nil
	}
	m.count.Acquired++
	if err := m.settled(); err != nil {
		return done, err
	}
	return m.judge()
}

// judge looks at what was read without a lock, or perhaps after it.
func (m *reader) judge() (verdict, error) {
	cur, err := m.decode()
	if err == nil && cur.Whole {
		return done, m.take(&cur)
	}
	m.count.Torn++
	if m.form == FormReadChain || m.reads >= mostReads {
		m.form, m.state = FormReadHeld, acquireIdle
	}
	return m.step()
}

func (m *reader) take(cur *memory.Current) error {
	m.count.carriedOut(m.form)
	for i, n := range m.records {
		r, err := m.l.Record(cur, n)
		if err == nil {
			err = m.deliver(i, r)
		}
		if err != nil {
			return err
		}
		if i == 0 {
			m.version = r.Version
		}
	}
	return nil
}

func (m *reader) undo() (verdict, error) {
	if m.form == FormReadHeld {
		return m.acquire.undo()
	}
	return done, nil // a chain undoes itself
}
