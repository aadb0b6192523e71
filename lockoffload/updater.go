package lockoffload

import "fmt"

// updater changes records of a slot in two steps:
//
//	[CMP_SWAP lock 0 -> tag, READ readers and records]   compute   [WRITEs, CMP_SWAP lock tag -> 0]
//
// The WRITEs are posted only when the lock command's result says that the lock
// is ours: nothing else would hold a WRITE back. They go to the copies that are
// not current.
type updater struct {
	acquire
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
	olds, err := m.decode()
	var data [][]byte
	if err == nil {
		m.old = m.old[:0]
		for _, c := range olds {
			m.old = append(m.old, c.data)
		}
		data, err = m.change(m.old)
	}
	if err == nil && len(data) != len(olds) {
		err = fmt.Errorf("%w: %d records changed, %d named", ErrConfig, len(data), len(olds))
	}
	for i := range data {
		if err == nil && len(data[i]) > m.l.Size {
			err = fmt.Errorf("%w: %d bytes of data, records have %d", ErrConfig, len(data[i]), m.l.Size)
		}
	}
	if err == nil {
		err = m.allowed()
	}
	m.begin()
	if err == nil {
		m.count.carriedOut(FormTwoStep)
		m.version = olds[0].version
		for i, d := range data {
			if d != nil {
				m.writeRecord(m.grant.slot, m.records[i], i, olds[i], d)
				m.wrote = true
			}
		}
		if data[0] != nil {
			m.version++
		}
	}
	m.release(m.grant, m.tags.owner)
	return last, err
}

// writeRecord adds the WRITE of the copy that is not current. i is its place
// in local memory.
func (w *work) writeRecord(slot, record, i int, old current, data []byte) {
	at := w.writeAt(i)
	n := encode(w.mem[at:], old.version+1, data)
	off := w.l.copyOff(slot, record, 1-old.which)
	w.ops = append(w.ops, op{kind: opWrite, off: off, at: at, n: n})
}
