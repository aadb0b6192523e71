package lockoffload

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// warm is what a job keeps for reads and updates, which are to allocate
// nothing: their machines, and what these call, bound once.
type warm struct {
	reader  machine.Reader
	updater machine.Updater

	dst    [][]byte  // buffers of a read, which are cut to the data
	one    [1][]byte // the only buffer, or the only new data
	change func(old []byte) ([]byte, error)

	deliver   func(int, memory.Content) error
	changeOne func([][]byte) ([][]byte, error)
	allowed   func() error
	wrote     func() bool
}

func (w *warm) bind(j *job) {
	w.deliver, w.changeOne = w.toBuffer, w.changeFirst
	w.allowed = func() error { return j.s.allowed() }
	w.wrote = func() bool { return w.updater.Wrote }
}

// clear lets go of what is the caller's or the session's.
func (w *warm) clear() {
	w.dst, w.one[0], w.change, w.updater.Change = nil, nil, nil, nil
	w.reader.Tags, w.reader.Deliver, w.updater.Tags = nil, nil, nil
}

// read runs the machine of a read. What deliver gets is in the job's memory, which
// another machine gets afterwards.
func (j *job) read(ctx context.Context, f Form, records []int, deliver func(int, memory.Content) error) (Result, error) {
	m := &j.warm.reader
	*m = machine.Reader{} // in place; a literal would be made elsewhere and copied
	m.Tags, m.Records, m.Tries, m.Grant.Slot = &j.s.tags, records, j.c.cfg.Retry.Tries, j.slot
	m.Reading, m.Data, m.Deliver, m.Form = true, true, deliver, machine.Form(f)
	m.Now, m.InTime = now, machine.ReadTime(j.s.lease)
	j.prepare(m, j.slot)
	_, err := j.drive(ctx)
	res := Result{Tries: m.Reads + m.Tried, Form: Form(m.Form)}
	if err == nil {
		res.Version = m.Version
	}
	return res, err
}

// readInto is read into buffers.
func (j *job) readInto(ctx context.Context, form Form, records []int, dst [][]byte) (Result, error) {
	j.warm.dst = dst
	return j.read(ctx, form, records, j.warm.deliver)
}

func (w *warm) toBuffer(i int, r memory.Content) error {
	if len(r.Data) > len(w.dst[i]) {
		return fmt.Errorf("%w: %d bytes do not fit in %d", ErrConfig, len(r.Data), len(w.dst[i]))
	}
	w.dst[i] = w.dst[i][:copy(w.dst[i], r.Data)]
	return nil
}

// update runs the machine of an update.
func (j *job) update(ctx context.Context, records []int, change func([][]byte) ([][]byte, error)) (Result, error) {
	w := &j.warm
	m := &w.updater
	old := m.Old
	*m = machine.Updater{}
	m.Tags, m.Records, m.Tries, m.Grant.Slot = &j.s.tags, records, j.c.cfg.Retry.Tries, j.slot
	m.Data, m.Old, m.Change, m.Allowed = true, old, change, w.allowed
	j.prepare(m, j.slot)
	j.wrote = w.wrote
	commit, err := j.drive(ctx)
	res := Result{Form: FormTwoStep, Commit: commit, Tries: m.Tried, Version: m.Version}
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
