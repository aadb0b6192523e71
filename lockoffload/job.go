package lockoffload

import (
	"context"
	"sync/atomic"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// job drives a machine for a client, with the resources for it: memory, a list, a
// flight. It returns to the client's idle jobs, for the next machine, when neither the
// call that started it holds it nor requests that it left under way.
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
	flight  flight // of all lists but the last one, awaited by the call that drives the job

	// Scratch of reads and chains, so that they allocate nothing.
	reader   machine.Reader
	writer   machine.Chain
	accesses []machine.Access
	update   func(old []byte) ([]byte, error) // of [Client.Update]
	chain    *Chain                           // of [Client.Do]

	// Methods of the job, bound once.
	allowed                func() error
	changeOne, changeChain func([]machine.Access) error
}

// start returns a job for a machine, which the caller must run. It checks again whether
// the client is open: the caller may have waited since it did.
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

// begin checks the context and the slot of a call and returns a job of the present
// session, which the caller must prepare, drive and drop.
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

// idle takes a job from the idle ones, and returns nil if there is none. mu must be
// held.
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

// orNew returns j, or a new job if j is nil. The caller must have counted it as busy.
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

// prepare gives the machine the job's memory and list.
func (j *job) prepare(m machine.Machine, slot int) {
	j.m, j.slot, j.missed = m, slot, 0
	w := m.Base()
	w.L, w.Mem, w.Ops = j.c.l, j.mr.Bytes(), j.ops
}

// finish counts the machine's events and calls after. Call it when no request of the
// machine is under way any more.
func (j *job) finish() {
	w := j.m.Base()
	j.c.count(j.slot, Stats(w.Count))
	w.Count = machine.Counts{}
	if j.after != nil {
		j.after()
	}
}

// drop ends the hold of a call, or of requests under way, on the job.
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

// noLongerBusy counts one busy job less. mu must be held.
func (c *Client) noLongerBusy() {
	if c.busy--; c.busy == 0 && c.idled != nil {
		close(c.idled)
		c.idled = nil
	}
}
