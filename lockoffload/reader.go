package lockoffload

// reader reads records of a slot and gives the lock back.
//
// One record takes a chain, posted at once:
//
//	[CMP_SWAP lock 0 -> tag, READ record, CMP_SWAP lock tag -> 0]
//
// or, where such chains were seen to meet each other, its shared form. A device
// may execute the READ after the unlock command, and then under another
// holder's WRITE. So both copies must be valid, or the record is read again in
// the form for several records, in which the unlock command is posted when the
// READs are complete:
//
//	[CMP_SWAP lock 0 -> tag, READs]   [CMP_SWAP lock tag -> 0]
type reader struct {
	acquire               // the held form; its work is everybody's
	shared  acquireShared // the shared chain
	form    Form
	met     bool // another reader was met: see Client.Read
	posted  bool // a chain is under way
	version uint64
	// deliver gets the i-th record.
	deliver func(i int, c current) error
	// mayShare asks for the shared chain, before each chain; nil means no. The
	// one bit that a session has among the readers may be in use.
	mayShare func() bool
}

func (m *reader) step() (verdict, error) {
	switch m.form {
	case FormSharedChain:
		m.lend()
		v, err := m.shared.step()
		m.borrow()
		if v != done || err != nil {
			return v, err
		}
		return m.judge()
	case FormReadHeld:
		v, err := m.acquire.step()
		if v != done || err != nil {
			return v, err
		}
		out, err := m.decode()
		if err == nil {
			err = m.take(out)
		}
		m.begin()
		m.release(m.grant, m.tags.owner)
		return last, err
	}
	return m.chain()
}

func (m *reader) chain() (verdict, error) {
	if !m.posted {
		if m.mayShare != nil && m.mayShare() {
			m.form = FormSharedChain
			return m.step()
		}
		m.begin()
		m.ask()
		m.release(m.grant, m.tags.owner)
		m.posted = true
		return post, nil
	}
	m.posted = false
	holder := m.result(m.lock)
	m.note(holder != 0)
	if holder != 0 {
		m.met = m.met || holder&readingTag != 0
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

// judge looks at what a chain has read.
func (m *reader) judge() (verdict, error) {
	out, err := m.decode()
	whole := err == nil
	for _, c := range out {
		whole = whole && c.whole
	}
	if whole {
		return done, m.take(out)
	}
	m.count.Torn++
	m.form, m.state = FormReadHeld, acquireIdle
	return m.step()
}

func (m *reader) take(out []current) error {
	m.count.carriedOut(m.form)
	m.version = out[0].version
	for i, c := range out {
		if err := m.deliver(i, c); err != nil {
			return err
		}
	}
	return nil
}

// decode looks at the records that were read. Its answer is found.
func (w *acquire) decode() ([]current, error) {
	w.found = w.found[:0]
	for i := range w.records {
		c, err := decodePair(w.pair(i))
		if err != nil {
			return nil, err
		}
		w.found = append(w.found, c)
	}
	return w.found, nil
}

func (m *reader) undo() (verdict, error) {
	if m.form == FormReadHeld {
		return m.acquire.undo()
	}
	return done, nil // a chain undoes itself
}

// lend and borrow pass the list on to the shared chain and take it back.
func (m *reader) lend() {
	m.shared.work, m.shared.tags, m.shared.records, m.shared.tries, m.shared.chain = m.work, m.tags, m.records, m.tries, true
	m.shared.grant.slot, m.shared.tried = m.grant.slot, m.tried
}

func (m *reader) borrow() { m.work, m.tried = m.shared.work, m.shared.tried }
