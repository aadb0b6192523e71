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
	c     *Client
	s     *session
	m     machine.Machine
	slot  int
	share *bit // that the job takes and gives back

	missed  int          // tries that failed
	lists   uint         // of machines that do not ask how long they take
	holders atomic.Int32 // the call, and requests under way; of an idle job 1, the next call
	mr      *verbs.MR
	ops     []machine.Op
	wrs     requests
	flight  flight // of all lists but the last one, awaited by the call that drives the job

	// Memory for reads and chains, so that they allocate nothing.
	reader   machine.Reader
	chain    machine.Chain
	accesses []machine.Access
	commit   *Commit // for the next change; nil: none is made yet
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
	return c.takeJob(c.s, slot)
}

// start returns a job for a machine, which the caller must drive and drop.
func (c *Client) start(s *session, m machine.Machine, slot int) (*job, error) {
	c.mu.Lock()
	j, err := c.takeJob(s, slot)
	if err == nil {
		j.prepare(m)
	}
	return j, err
}

// takeJob returns an idle job or a new one, unless the client is closed: the caller may
// have waited since it looked. mu must be held, and is released.
func (c *Client) takeJob(s *session, slot int) (j *job, err error) {
	if c.freed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	if last := len(c.jobs) - 1; last >= 0 {
		j = c.jobs[last]
		c.jobs[last], c.jobs = nil, c.jobs[:last]
	}
	c.busy++
	c.mu.Unlock()
	if j == nil {
		mr, err := c.cfg.PD.AllocMR(c.l.LocalSize(), verbs.MRConfig{})
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.noLongerBusy()
			return nil, err
		}
		j = &job{c: c, mr: mr, ops: make([]machine.Op, 0, 8), accesses: make([]machine.Access, 0, 4)}
		j.holders.Store(1)
	}
	j.s, j.slot = s, slot
	return j, nil
}

// prepare gives the machine the job's memory and list.
func (j *job) prepare(m machine.Machine) {
	j.m, j.missed = m, 0
	w := m.Base()
	w.L, w.Mem, w.Ops = j.c.l, j.mr.Bytes(), j.ops
}

// count adds the machine's events to the client's. mu must be held.
func (j *job) count() {
	if j.m != nil {
		w := j.m.Base()
		j.c.stats.add(Stats(w.Count))
		w.Count = machine.Counts{}
	}
}

// drop ends the hold of a call, or of requests under way, on the job.
func (j *job) drop() {
	if j.holders.Load() > 1 { // else there is no other one that could change it
		if j.holders.Add(-1) > 0 {
			return
		}
		j.holders.Store(1)
	}
	c := j.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.noLongerBusy()
	j.count()
	if j.share != nil {
		c.endShare(j.share)
	}
	if j.m != nil {
		j.ops = j.m.Base().Ops[:0]
	}
	j.s, j.m, j.share = nil, nil, nil
	clear(j.accesses)
	j.accesses = j.accesses[:0]
	j.reader.Tags, j.chain.Tags = nil, nil
	if !c.freed {
		c.jobs = append(c.jobs, j)
	} else if err := j.mr.Close(); err != nil {
		c.cfg.Logger.Error("lockoffload: free memory of a closed client", "error", err)
	}
}

// noLongerBusy counts one busy job less. mu must be held.
func (c *Client) noLongerBusy() {
	if c.busy--; c.busy == 0 && c.idled != nil {
		close(c.idled)
		c.idled = nil
	}
}
