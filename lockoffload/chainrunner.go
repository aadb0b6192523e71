package lockoffload

// chainRunner carries out a [Chain] without an agent, as updater does a change.
// A chain that only reads takes the lock with a tag that says so.
type chainRunner struct {
	acquire
	ch      *Chain
	place   []int // of each access's record among records
	allowed func() error

	version uint64 // of the last access
	wrote   bool
}

func newChainRunner(ch *Chain, s *session, tries int) *chainRunner {
	m := &chainRunner{ch: ch, allowed: s.allowed}
	m.acquire = acquire{tags: &s.tags, tries: tries, reading: !ch.writes(), grant: grant{slot: ch.Slot}}
	if ch.Fair {
		m.queue = new(queue)
	}
	m.records, m.place = ch.records()
	return m
}

// records are those that a chain names, once each, and which one an access is
// about.
func (ch *Chain) records() (records, place []int) {
	for i := range ch.Accesses {
		at := -1
		for k, r := range records {
			if r == ch.Accesses[i].Record {
				at = k
			}
		}
		if at < 0 {
			at = len(records)
			records = append(records, ch.Accesses[i].Record)
		}
		place = append(place, at)
	}
	return records, place
}

func (m *chainRunner) step() (verdict, error) {
	v, err := m.acquire.step()
	if v != done || err != nil {
		return v, err
	}
	olds, err := m.decode()
	if err == nil && m.ch.writes() {
		err = m.allowed()
	}
	m.begin()
	if err == nil {
		err = m.perform(olds)
	}
	m.release(m.grant, m.tags.owner)
	return last, err
}

// perform does in local memory what the chain says, and adds the WRITEs.
func (m *chainRunner) perform(olds []current) error {
	var err error
	for i := range m.ch.Accesses {
		a := &m.ch.Accesses[i]
		if a.Kind == AccessCompare && a.Version != olds[m.place[i]].version {
			err = ErrDiffers
		}
	}
	now := append([]current(nil), olds...)
	for i := range m.ch.Accesses {
		a, k := &m.ch.Accesses[i], m.place[i]
		switch {
		case a.Kind == AccessWrite && err == nil:
			m.writeRecord(m.grant.slot, a.Record, k, olds[k], a.Data)
			now[k].version, now[k].data = olds[k].version+1, a.Data
			m.wrote = true
		case a.Kind == AccessRead:
			a.Data = append(a.Data[:0], now[k].data...)
		}
		a.Version = now[k].version
		m.version = a.Version
	}
	if err == nil {
		m.count.carriedOut(m.form())
	}
	return err
}

func (m *chainRunner) form() Form {
	if m.reading {
		return FormReadHeld
	}
	return FormTwoStep
}
