package lockoffload

import (
	"context"
	"fmt"
)

// warm is what a job keeps for reads and updates, which are to allocate
// nothing: their machines, and what these call, bound once.
type warm struct {
	reader  reader
	updater updater

	dst    [][]byte  // buffers of a read, which are cut to the data
	one    [1][]byte // the only buffer, or the only new data
	change func(old []byte) ([]byte, error)

	deliver   func(int, current) error
	mayShare  func() bool
	changeOne func([][]byte) ([][]byte, error)
	allowed   func() error
	wrote     func() bool
}

func (w *warm) bind(j *job) {
	w.deliver, w.mayShare, w.changeOne = w.toBuffer, j.tryShare, w.changeFirst
	w.allowed = func() error { return j.s.allowed() }
	w.wrote = func() bool { return w.updater.wrote }
}

// clear lets go of what is the caller's or the session's.
func (w *warm) clear() {
	w.dst, w.one[0], w.change, w.updater.change = nil, nil, nil, nil
	w.reader.tags, w.reader.shared.tags, w.updater.tags = nil, nil, nil
}

// read runs the machine of a read. The data is in the job's memory, which
// another machine gets afterwards.
func (j *job) read(ctx context.Context, records []int, dst [][]byte) (Result, error) {
	w := &j.warm
	m := &w.reader
	found := m.found
	*m = reader{} // in place; a literal would be made elsewhere and copied
	m.tags, m.records, m.tries, m.grant.slot = &j.s.tags, records, j.c.cfg.Retry.Tries, j.slot
	m.reading, m.found, m.deliver = true, found, w.deliver
	if len(records) > 1 {
		m.form = FormReadHeld
	} else {
		m.mayShare = w.mayShare
	}
	w.dst = dst
	j.prepare(m, j.slot)
	_, err := j.drive(ctx)
	res := Result{Tries: m.tried, Form: m.form}
	if err == nil {
		res.Version = m.version
	}
	return res, err
}

func (w *warm) toBuffer(i int, cur current) error {
	if len(cur.data) > len(w.dst[i]) {
		return fmt.Errorf("%w: %d bytes do not fit in %d", ErrConfig, len(cur.data), len(w.dst[i]))
	}
	w.dst[i] = w.dst[i][:copy(w.dst[i], cur.data)]
	return nil
}

// tryShare takes the bit for a shared chain, where chains were seen to meet.
func (j *job) tryShare() bool {
	if j.warm.reader.met {
		j.c.met(j.slot)
	}
	if !j.c.meeting(j.slot) {
		return false
	}
	b := j.c.tryBit(j.s, j.slot)
	if b != nil {
		j.after = func() { j.c.endShare(b) }
	}
	return b != nil
}

// update runs the machine of an update.
func (j *job) update(ctx context.Context, records []int, change func([][]byte) ([][]byte, error)) (Result, error) {
	w := &j.warm
	m := &w.updater
	found, old := m.found, m.old
	*m = updater{}
	m.tags, m.records, m.tries, m.grant.slot = &j.s.tags, records, j.c.cfg.Retry.Tries, j.slot
	m.found, m.old, m.change, m.allowed = found, old, change, w.allowed
	j.prepare(m, j.slot)
	j.wrote = w.wrote
	commit, err := j.drive(ctx)
	res := Result{Form: FormTwoStep, Commit: commit, Tries: m.tried, Version: m.version}
	if err != nil {
		return res, opError("update", j.slot, err)
	}
	return res, nil
}

func (w *warm) changeFirst(old [][]byte) ([][]byte, error) {
	data, err := w.change(old[0])
	if data == nil {
		data = []byte{}
	}
	w.one[0] = data
	return w.one[:], err
}
