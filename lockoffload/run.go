package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Commit is the outcome of something that was posted and that nobody waits for
// unless they want to.
type Commit struct {
	c    *Client
	s    *session
	slot int
	done chan struct{}
	err  error // once done is closed

	mu     sync.Mutex
	flight *flight
	asked  bool // somebody has the error, or will
}

// Done is closed when the outcome is known. Completions are looked at by
// whoever uses the client, at the latest by the session's heartbeat.
func (p *Commit) Done() <-chan struct{} { return p.done }

// Wait waits for the outcome: nil when all was executed and the lock was ours
// to the end, [ErrLost], or [ErrOutcomeUnknown] with [ErrBroken].
func (p *Commit) Wait(ctx context.Context) error {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	if err := p.await(ctx); err != nil {
		return err
	}
	p.c.reported(p.err)
	return p.err
}

// await answers the context's error only.
func (p *Commit) await(ctx context.Context) error {
	p.mu.Lock()
	f := p.flight
	p.mu.Unlock()
	if f != nil {
		if err := p.s.line.await(ctx, f); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) newCommit(s *session, slot int) *Commit {
	p := &Commit{c: c, s: s, slot: slot, done: make(chan struct{})}
	c.mu.Lock()
	c.pending[p] = struct{}{}
	c.mu.Unlock()
	return p
}

func (p *Commit) end(err error) {
	p.mu.Lock()
	asked := p.asked
	p.mu.Unlock()
	p.err = err
	p.c.mu.Lock()
	delete(p.c.pending, p)
	if err != nil {
		p.c.failed = append(p.c.failed, err)
	}
	p.c.mu.Unlock()
	if err != nil && !asked {
		p.c.cfg.Log.Warn("lockoffload: nobody waited for a lock to be given back", "slot", p.slot, "error", err)
	}
	close(p.done)
}

// reported takes an error from those that Flush will answer.
func (c *Client) reported(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range c.failed {
		if f == err {
			c.failed = append(c.failed[:i], c.failed[i+1:]...)
			return
		}
	}
}

// job is a machine on its way through the client.
type job struct {
	c     *Client
	s     *session
	m     machine
	mr    *verbs.MR
	slot  int
	wrote func() bool // the last list has WRITEs
	// after is called when nothing of the machine is under way any more.
	after func()
}

// start gives a machine its memory.
func (c *Client) start(m machine, slot, records int) (*job, error) {
	mr, err := c.arena(records)
	if err != nil {
		return nil, err
	}
	w := m.base()
	w.l, w.mem = c.l, mr.Bytes()
	return &job{c: c, m: m, mr: mr, slot: slot}, nil
}

// run drives the machine to its end. What it posts last is not waited for.
func (j *job) run(ctx context.Context, s *session) (*Commit, error) {
	j.s = s
	running := true
	defer func() {
		if running { // a callback panics: the lock must not stay
			j.giveUp(nil)
		}
	}()
	for {
		v, err := j.m.step()
		switch v {
		case done:
			running = false
			j.finish()
			return nil, err
		case last:
			running = false
			p, perr := j.postLast()
			return p, errors.Join(err, perr)
		case sleep:
			if err := j.sleep(ctx); err != nil {
				running = false
				j.giveUp(nil)
				return nil, fmt.Errorf("%w: %w", ErrNotAcquired, err)
			}
		case post:
			f, err := s.line.issue(j.m.base().ops, j.mr, nil)
			if err == nil {
				err = s.line.await(ctx, f)
			}
			if err != nil {
				running = false
				j.giveUp(f)
				if s.line.fault() == nil && ctx.Err() != nil {
					err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
				}
				return nil, err
			}
		}
	}
}

func (j *job) finish() {
	w := j.m.base()
	j.c.count(j.slot, w.count)
	if w.count.Acquired > 0 {
		j.c.pause(j.slot, false)
	}
	w.count = Counts{}
	j.c.giveBack(j.mr)
	if j.after != nil {
		j.after()
	}
}

// postLast posts the list with which the machine ends.
func (j *job) postLast() (*Commit, error) {
	p := j.c.newCommit(j.s, j.slot)
	// Held so that whoever flushes finds the flight, and polls for it.
	p.mu.Lock()
	f, err := j.s.line.issue(j.m.base().ops, j.mr, func(err error) { j.settle(p, err) })
	p.flight = f
	p.mu.Unlock()
	if err != nil {
		j.settle(p, err)
		j.c.reported(p.err)
		return nil, err
	}
	return p, nil
}

func (j *job) settle(p *Commit, err error) {
	switch {
	case err == nil:
		err = j.m.base().settled()
	case j.wrote != nil && j.wrote():
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if err != nil {
		err = opError("unlock", j.slot, err)
	}
	j.finish()
	p.end(err)
}

// giveUp lets the machine undo what it did, in the background: first the list
// under way must end.
func (j *job) giveUp(f *flight) {
	p := j.c.newCommit(j.s, j.slot)
	p.asked = true // of no interest to anybody but Flush
	go func() {
		err := j.undo(f)
		if errors.Is(err, ErrBroken) {
			err = nil // the target takes back what is left
		}
		if err != nil {
			err = opError("give up", j.slot, err)
		}
		j.finish()
		p.end(err)
	}()
}

func (j *job) undo(f *flight) error {
	ctx := context.Background()
	if f != nil {
		if err := j.s.line.await(ctx, f); err != nil {
			return err
		}
	} else if err := j.s.line.fault(); err != nil {
		return err
	}
	for {
		v, err := j.m.undo()
		if v == done {
			return err
		}
		f, ierr := j.s.line.issue(j.m.base().ops, j.mr, nil)
		if ierr == nil {
			ierr = j.s.line.await(ctx, f)
		}
		if ierr != nil || v == last {
			return ierr
		}
	}
}

// sleep pauses before the next try, with jitter so that clients do not march in
// step.
func (j *job) sleep(ctx context.Context) error {
	w := j.m.base()
	p := j.c.cfg.Retry.Min * time.Duration(min(w.far, 1000))
	if w.far == 0 {
		p = j.c.pause(j.slot, w.missed)
	}
	t := time.NewTimer(p/2 + rand.N(p+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-j.s.lost:
		if err := j.s.line.fault(); err != nil {
			return err
		}
		return ErrLost
	case <-ctx.Done():
		return ctx.Err()
	}
}
