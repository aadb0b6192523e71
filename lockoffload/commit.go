package lockoffload

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Commit is the outcome of a change that was posted, for callers that want to wait
// for it.
type Commit struct {
	c     *Client
	s     *session
	slot  int
	over  event
	err   error       // once over
	asked atomic.Bool // a call has returned the error, or will

	j *job // until it is over

	mu     sync.Mutex
	posted bool
	flight flight
}

// Done returns a channel that is closed when the outcome is known. Every use of the
// client polls for completions, at the latest the session's heartbeat.
func (p *Commit) Done() <-chan struct{} { return p.over.done() }

// Wait waits for the outcome: nil when all was executed and the lock was held to the
// end, [ErrLost], or [ErrOutcomeUnknown] with [ErrBroken].
func (p *Commit) Wait(ctx context.Context) error {
	p.asked.Store(true)
	if err := p.await(ctx); err != nil {
		return err
	}
	if p.err != nil {
		p.c.reported(p.err)
	}
	return p.err
}

// await waits for the outcome. It returns no error but the context's.
func (p *Commit) await(ctx context.Context) error {
	if p.over.happened() {
		return nil
	}
	for !p.mu.TryLock() { // it waits for room
		select {
		case <-p.over.done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	posted := p.posted
	p.mu.Unlock()
	if posted {
		if err := p.s.line.await(ctx, &p.flight); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	select {
	case <-p.over.done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) newCommit(s *session, slot int) *Commit {
	p := &Commit{c: c, s: s, slot: slot}
	c.mu.Lock()
	c.pending[p] = struct{}{}
	c.mu.Unlock()
	return p
}

// post posts the list with which a job ends, once there is room for it. It returns the
// context's error if that ends first.
func (p *Commit) post(ctx context.Context) error {
	// Held so that Flush finds the flight, and polls for it.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flight.list, p.flight.then = p.j.m.Base().Ops, p
	err := p.s.line.postWithin(ctx, &p.flight, p.j.mr)
	p.posted = err == nil
	return err
}

// ended ends the job and the commit, after the list has ended or could not be posted.
func (p *Commit) ended(err error) {
	j := p.j
	if err == nil {
		err = j.m.Base().Settled()
	}
	if err != nil && j.m.Base().Wrote {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if err != nil {
		err = opError("unlock", p.slot, err)
	}
	j.finish()
	j.drop()
	p.j, p.flight.list, p.flight.mem = nil, nil, nil
	p.end(err)
}

func (p *Commit) end(err error) {
	asked := p.asked.Load()
	p.err = err
	p.c.mu.Lock()
	delete(p.c.pending, p)
	if err != nil {
		p.c.failed = append(p.c.failed, err)
	}
	p.c.mu.Unlock()
	if err != nil && !asked {
		p.c.cfg.Logger.Warn("lockoffload: nobody waited for a lock to be given back", "slot", p.slot, "error", err)
	}
	p.over.happen()
}

// reported removes an error from those that Flush will return.
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
