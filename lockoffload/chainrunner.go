package lockoffload

import (
	"slices"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// chainRunner carries out a [Chain] without an agent, as updater does a change.
// A chain that only reads takes the lock with a tag that says so.
type chainRunner struct {
	acquire
	ch      *Chain
	allowed func() error

	version uint64 // of the last access
	wrote   bool
}

func newChainRunner(ch *Chain, s *session, tries int) *chainRunner {
	m := &chainRunner{ch: ch, allowed: s.allowed}
	m.acquire = acquire{tags: &s.tags, tries: tries, data: true, reading: !ch.writes(), grant: grant{slot: ch.Slot}}
	if ch.Fair {
		m.queue = new(queue)
	}
	return m
}

// records are those that a chain names, once each.
func (ch *Chain) records() []int {
	var records []int
	for i := range ch.Accesses {
		if r := ch.Accesses[i].Record; !slices.Contains(records, r) {
			records = append(records, r)
		}
	}
	return records
}

func (m *chainRunner) step() (verdict, error) {
	v, err := m.acquire.step()
	if v != done || err != nil {
		return v, err
	}
	old, err := m.decode()
	if err == nil && m.ch.writes() {
		err = m.allowed()
	}
	m.begin()
	if err == nil {
		err = m.perform(&old)
	}
	m.release(m.grant, m.tags.Owner)
	return last, err
}

// perform does in local memory what the chain says, and adds the WRITE.
func (m *chainRunner) perform(old *memory.Current) error {
	var differs error
	for i := range m.ch.Accesses {
		a := &m.ch.Accesses[i]
		r, err := m.l.Record(old, a.Record)
		if err != nil {
			return err
		}
		if a.Kind == AccessCompare && a.Version != r.Version {
			differs = ErrDiffers
		}
	}
	now := *old
	m.l.Stage(m.next(), old)
	for i := range m.ch.Accesses {
		a := &m.ch.Accesses[i]
		was, _ := m.l.Record(old, a.Record) // looked at above
		if a.Kind == AccessWrite && differs == nil {
			m.l.Put(m.next(), a.Record, was.Version+1, a.Data)
			now = m.l.Staged(m.next(), old.Version+1)
			m.wrote = true
		}
		r, _ := m.l.Record(&now, a.Record)
		if a.Kind == AccessRead {
			a.Data = append(a.Data[:0], r.Data...)
		}
		a.Version, m.version = r.Version, r.Version
	}
	if m.wrote {
		m.writeSlot(m.grant.slot, old)
	}
	if differs == nil {
		m.count.carriedOut(m.form())
	}
	return differs
}

func (m *chainRunner) form() Form {
	if m.reading {
		return FormReadHeld
	}
	return FormTwoStep
}
