package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Commit is the outcome of a change that was posted, for callers that want to wait
// for it.
type Commit struct {
	c     *Client
	s     *session
	slot  int
	over  event
	err   error       // once over
	ended bool        // under the client's mu
	waits int         // calls of Flush and others that wait for it, under the client's mu
	asked atomic.Bool // a call has returned the error, or will

	j      *job          // until it is over
	room   chan struct{} // closed when the list is posted, or cannot be; nil: it was at once
	flight flight        // of the list, if there is one
}

// Done returns a channel that is closed when the outcome is known. Every use of the
// client polls for completions, at the latest the session's heartbeat.
func (p *Commit) Done() <-chan struct{} { return p.over.done() }

// Wait waits for the outcome: nil when all was executed and the lock was held to the
// end, or [ErrLost] or [ErrBroken]; with [ErrOutcomeUnknown] if a WRITE was posted. When ctx
// ends, the change stays under way, and Wait may be called again.
func (p *Commit) Wait(ctx context.Context) error {
	p.asked.Store(true)
	if err := p.await(ctx); err != nil {
		return err
	}
	if p.err != nil {
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		delete(p.c.failed, p)
	}
	return p.err
}

// await waits for the outcome. It returns no error but the context's.
func (p *Commit) await(ctx context.Context) error {
	if p.over.happened() {
		return nil
	}
	if p.room != nil {
		select {
		case <-p.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if p.flight.posted {
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

// postLast posts the list with which the job's machine ends, in the background if there is
// no room for it before the context ends: it gives something back.
func (j *job) postLast(ctx context.Context) (*Commit, error) {
	p := j.commit
	if p == nil {
		p = &Commit{c: j.c}
	}
	j.commit = nil
	p.s, p.slot, p.j = j.s, j.slot, j
	p.flight.list, p.flight.then = j.m.Base().Ops, p
	j.holders.Add(1)
	switch err := p.s.line.post(ctx, &p.flight, j.mr); {
	case errors.Is(err, ErrBroken):
		p.asked.Store(true)
		p.executed(err)
		_ = p.Wait(ctx) // so that Flush does not return the error too
		return nil, p.err
	case err != nil:
		p.room = make(chan struct{})
		go func() {
			err := p.s.line.post(context.Background(), &p.flight, j.mr)
			close(p.room)
			if err != nil {
				p.executed(err)
			}
		}()
	}
	p.register()
	return p, nil
}

// register has Flush wait for the commit, unless it is over already.
func (p *Commit) register() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if !p.ended {
		p.c.pending[p] = struct{}{}
	}
}

// reuse keeps the commit of a change that has been waited for, without an error, for the job's next
// one, unless another call waits for it. It returns one that is over, for the result.
func (j *job) reuse(p *Commit) *Commit {
	c := j.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.waits > 0 || p.room != nil || !p.flight.call.Done() { // the goroutine that polls is about to end it
		return p
	}
	p.s, p.ended, p.flight.posted = nil, false, false
	p.asked.Store(false)
	p.over.ch.Store(nil)
	j.commit = p
	return c.settled
}

// executed ends the job and the commit, after the list has ended or could not be posted.
func (p *Commit) executed(err error) {
	w := p.j.m.Base()
	if err == nil {
		err = w.Settled()
	}
	if err != nil && w.Wrote {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	if err != nil {
		err = opError("unlock", p.slot, err)
	}
	p.j.drop()
	p.j, p.flight.list, p.flight.mem = nil, nil, nil
	p.end(err)
}

func (p *Commit) end(err error) {
	asked := p.asked.Load()
	p.err = err
	p.c.mu.Lock()
	p.ended = true
	delete(p.c.pending, p)
	if err != nil {
		p.c.failed[p] = struct{}{}
	}
	p.c.mu.Unlock()
	if err != nil && !asked {
		p.c.cfg.Logger.Warn("lockoffload: no call waited for a lock to be given back", "slot", p.slot, "error", err)
	}
	p.over.happen()
}
