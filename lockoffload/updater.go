package lockoffload

import (
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// updater changes records of a slot in two steps:
//
//	[CMP_SWAP lock 0 -> tag, READ readers and both copies]   compute   [WRITE, CMP_SWAP lock tag -> 0]
//
// The WRITE is posted only when the lock command's result says that the lock
// is ours: nothing else would hold it back. It goes to the copy that is not current,
// and is the change: whoever READs all of it may see it.
type updater struct {
	acquire
	records []int
	// change gets the records' data, valid until it returns, and answers the
	// new data. A nil entry leaves its record alone.
	change func(old [][]byte) ([][]byte, error)
	// allowed tells whether WRITEs may still be posted under the session's
	// lease.
	allowed func() error

	old     [][]byte
	version uint64 // of the first record, afterwards
	wrote   bool
}

func (m *updater) step() (verdict, error) {
	v, err := m.acquire.step()
	if v != done || err != nil {
		return v, err
	}
	cur, err := m.decode()
	var data [][]byte
	if err == nil {
		data, err = m.compute(&cur)
	}
	if err == nil {
		err = m.allowed()
	}
	m.begin()
	if err == nil {
		m.count.carriedOut(FormTwoStep)
		m.write(&cur, data)
	}
	m.release(m.grant, m.tags.Owner)
	return last, err
}

func (m *updater) compute(cur *memory.Current) ([][]byte, error) {
	m.old = m.old[:0]
	for i, n := range m.records {
		r, err := m.l.Record(cur, n)
		if err != nil {
			return nil, err
		}
		m.old = append(m.old, r.Data)
		if i == 0 {
			m.version = r.Version
		}
	}
	data, err := m.change(m.old)
	switch {
	case err != nil:
		return nil, err
	case len(data) != len(m.records):
		return nil, fmt.Errorf("%w: %d records changed, %d named", memory.ErrConfig, len(data), len(m.records))
	}
	for _, d := range data {
		if len(d) > m.l.Size {
			return nil, fmt.Errorf("%w: %d bytes of data, records have %d", memory.ErrConfig, len(d), m.l.Size)
		}
	}
	return data, nil
}

// write adds the WRITE, if there is anything to be written.
func (m *updater) write(cur *memory.Current, data [][]byte) {
	m.l.Stage(m.next(), cur)
	for i, d := range data {
		if d == nil {
			continue
		}
		old, _ := m.l.Record(cur, m.records[i]) // decoded before
		m.l.Put(m.next(), m.records[i], old.Version+1, d)
		m.wrote = true
		if i == 0 {
			m.version = old.Version + 1
		}
	}
	if m.wrote {
		m.writeSlot(m.grant.slot, cur)
	}
}
