package machine

import (
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// Updater changes records of a slot in two steps:
//
//	[CMP_SWAP lock 0 -> tag, READ readers and both copies]   compute   [WRITE, CMP_SWAP lock tag -> 0]
//
// The WRITE is posted only when the lock command's result says that the lock
// is ours: nothing else would hold it back. It goes to the copy that is not current,
// and is the change: whoever READs all of it may see it.
type Updater struct {
	Acquire
	Records []int
	// change gets the records' data, valid until it returns, and answers the
	// new data. A nil entry leaves its record alone.
	Change func(old [][]byte) ([][]byte, error)
	// allowed tells whether WRITEs may still be posted under the session's
	// lease.
	Allowed func() error

	Old     [][]byte
	Version uint64 // of the first record, afterwards
	Wrote   bool
}

func (m *Updater) Step() (Verdict, error) {
	v, err := m.Acquire.Step()
	if v != Done || err != nil {
		return v, err
	}
	cur, err := m.Decode()
	var data [][]byte
	if err == nil {
		data, err = m.compute(&cur)
	}
	if err == nil {
		err = m.Allowed()
	}
	m.begin()
	if err == nil {
		m.Count.carriedOut(FormTwoStep)
		m.write(&cur, data)
	}
	m.release(m.Grant, m.Tags.Owner)
	return Last, err
}

func (m *Updater) compute(cur *memory.Current) ([][]byte, error) {
	m.Old = m.Old[:0]
	for i, n := range m.Records {
		r, err := m.L.Record(cur, n)
		if err != nil {
			return nil, err
		}
		m.Old = append(m.Old, r.Data)
		if i == 0 {
			m.Version = r.Version
		}
	}
	data, err := m.Change(m.Old)
	switch {
	case err != nil:
		return nil, err
	case len(data) != len(m.Records):
		return nil, fmt.Errorf("%w: %d records changed, %d named", memory.ErrConfig, len(data), len(m.Records))
	}
	for _, d := range data {
		if len(d) > m.L.Size {
			return nil, fmt.Errorf("%w: %d bytes of data, records have %d", memory.ErrConfig, len(d), m.L.Size)
		}
	}
	return data, nil
}

// write adds the WRITE, if there is anything to be written.
func (m *Updater) write(cur *memory.Current, data [][]byte) {
	m.L.Stage(m.Next(), cur)
	for i, d := range data {
		if d == nil {
			continue
		}
		old, _ := m.L.Record(cur, m.Records[i]) // decoded before
		m.L.Put(m.Next(), m.Records[i], old.Version+1, d)
		m.Wrote = true
		if i == 0 {
			m.Version = old.Version + 1
		}
	}
	if m.Wrote {
		m.writeSlot(m.Grant.Slot, cur)
	}
}
