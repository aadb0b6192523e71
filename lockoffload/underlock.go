package lockoffload

// access reads one record under a lock that is held, and may write it:
//
//	[READ record]   [WRITE the other copy]
type access struct {
	work
	slot, record int
	change       func(current) ([]byte, error) // nil data: no WRITE
	allowed      func() error

	version     uint64
	read, wrote bool
}

func (m *access) step() (verdict, error) {
	switch {
	case m.wrote:
		return done, nil
	case !m.read:
		m.begin()
		m.readRecords(m.slot, []int{m.record})
		m.read = true
		return post, nil
	}
	old, err := decodePair(m.pair(0))
	if err != nil {
		return done, err
	}
	m.version = old.version
	data, err := m.change(old)
	if err == nil && data != nil {
		err = m.allowed()
	}
	if err != nil || data == nil {
		return done, err
	}
	m.begin()
	m.writeRecord(m.slot, m.record, 0, old, data)
	m.version++
	m.wrote = true
	return post, nil
}

func (m *access) undo() (verdict, error) { return done, nil }

// releaser gives a lock back.
type releaser struct {
	work
	grant grant
	owner uint16
}

func (m *releaser) step() (verdict, error) {
	m.begin()
	m.release(m.grant, m.owner)
	return last, nil
}

func (m *releaser) undo() (verdict, error) { return done, nil }
