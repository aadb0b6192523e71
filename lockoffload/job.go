package lockoffload

import (
	"context"
	"sync/atomic"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// job is a machine on its way through the client, with what it needs: memory,
// a list, a flight. It goes back to the client, for the next machine, when
// nobody holds it: neither the call that started it nor what it left under way.
type job struct {
	c    *Client
	s    *session
	m    machine.Machine
	slot int
	// after is called when nothing of the machine is under way any more.
	after func()

	missed  int // tries that failed
	holders atomic.Int32
	mr      *verbs.MR
	ops     []machine.Op
	flight  flight // of all lists but the last one, awaited by who drives the job

	// What reads and chains are made of, which are to allocate nothing.
	reader   machine.Reader
	writer   machine.Chain
	accesses []machine.Access
	update   func(old []byte) ([]byte, error) // of [Client.Update]
	chain    *Chain                           // of [Client.Do]

	// Methods of the job, bound once.
	allowed                func() error
	changeOne, changeChain func([]machine.Access) error
}

// start gives a machine its memory. The call that starts it must run it. The call may
// have waited since it looked whether the client is open.
func (c *Client) start(m machine.Machine, slot int) (*job, error) {
	c.mu.Lock()
	if c.freed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	j := c.idle()
	c.busy++
	c.mu.Unlock()
	j, err := c.orNew(j)
	if err != nil {
		return nil, err
	}
	j.prepare(m, slot)
	return j, nil
}

// begin checks what a call names and answers a job of the present session. The
// call prepares and drives it, and drops it.
func (c *Client) begin(ctx context.Context, slot int) (*job, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if err := c.check(slot); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	j, s := c.idle(), c.s
	c.busy++
	c.mu.Unlock()
	j, err := c.orNew(j)
	if err != nil {
		return nil, err
	}
	j.s, j.slot = s, slot
	return j, nil
}

// idle takes a job out of those that have nothing to do, or answers nil. The
// caller holds mu.
func (c *Client) idle() *job {
	last := len(c.jobs) - 1
	if last < 0 {
		return nil
	}
	j := c.jobs[last]
	c.jobs[last], c.jobs = nil, c.jobs[:last]
	j.holders.Store(1)
	return j
}

// orNew answers the job, or makes one where there is none. The caller has counted it.
func (c *Client) orNew(j *job) (*job, error) {
	if j != nil {
		return j, nil
	}
	mr, err := c.cfg.PD.AllocMR(c.l.LocalSize(), verbs.MRConfig{})
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.noLongerBusy()
		return nil, err
	}
	j = &job{c: c, mr: mr, ops: make([]machine.Op, 0, 8), accesses: make([]machine.Access, 0, 4)}
	j.holders.Store(1)
	j.allowed = func() error { return j.s.allowed() }
	j.changeOne, j.changeChain = j.updateOne, j.updateChain
	return j, nil
}

// prepare gives the machine memory and list.
func (j *job) prepare(m machine.Machine, slot int) {
	j.m, j.slot, j.missed = m, slot, 0
	w := m.Base()
	w.L, w.Mem, w.Ops = j.c.l, j.mr.Bytes(), j.ops
}

// finish is called when nothing of the machine is under way any more.
func (j *job) finish() {
	w := j.m.Base()
	j.c.count(j.slot, Counts(w.Count))
	w.Count = machine.Counts{}
	if j.after != nil {
		j.after()
	}
}

// drop ends the hold of a call, or of what is under way.
func (j *job) drop() {
	if j.holders.Add(-1) > 0 {
		return
	}
	if j.m != nil {
		j.ops = j.m.Base().Ops[:0]
	}
	j.s, j.m, j.after, j.update, j.chain = nil, nil, nil, nil, nil
	clear(j.accesses)
	j.accesses = j.accesses[:0]
	j.reader.Tags, j.writer.Tags = nil, nil
	j.c.mu.Lock()
	defer j.c.mu.Unlock()
	defer j.c.noLongerBusy()
	if !j.c.freed {
		j.c.jobs = append(j.c.jobs, j)
	} else if err := j.mr.Close(); err != nil {
		j.c.cfg.Logger.Error("lockoffload: free memory of a closed client", "error", err)
	}
}

// noLongerBusy is called under mu.
func (c *Client) noLongerBusy() {
	if c.busy--; c.busy == 0 && c.idled != nil {
		close(c.idled)
		c.idled = nil
	}
}
