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
	err   error // once over
	state atomic.Uint32
	waits int         // calls of Flush and others that wait for it, under the client's mu
	asked atomic.Bool // a call has returned the error, or will

	j      *job          // until it is over
	room   chan struct{} // closed when the list is posted, or cannot be; nil: it was at once
	flight flight        // of the list, if there is one
}

// States of a commit. One that is over before it is registered never meets other goroutines, nor the
// client's lock.
const (
	commitPosted     = iota
	commitRegistered // among the client's pending ones until it is over; changed under the client's mu
	commitEnded      // without having been registered
)

// Done returns a channel that is closed when the outcome is known. Every use of the
// client polls for completions, at the latest the session's heartbeat.
func (p *Commit) Done() <-chan struct{} { return p.over.done() }

// Wait waits for the outcome: nil when all was executed and the lock was held to the
// end, or [ErrLost] or [ErrBroken]; with [ErrOutcomeUnknown] if a WRITE was posted. When ctx
// ends, the change stays under way, and Wait may be called again.
func (p *Commit) Wait(ctx context.Context) error {
	if p.over.happened() && p.err == nil {
		return nil
	}
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
// no room for it before the context ends: it gives something back. until is for what it writes:
// from that time on, unless it is 0, nothing is posted, and the error is errLate.
func (j *job) postLast(ctx context.Context, until int64) (*Commit, error) {
	p := j.commit
	if p == nil {
		p = &Commit{c: j.c}
	}
	j.commit = nil
	p.s, p.slot, p.j = j.s, j.slot, j
	p.flight.list, p.flight.then, p.flight.until = j.m.Base().Ops, p, until
	j.holders.Add(1)
	switch err := p.s.line.post(ctx, &p.flight, j.mr, &j.wrs); {
	case err == errLate:
		j.holders.Add(-1)
		j.commit = p
		return nil, err
	case errors.Is(err, ErrBroken):
		p.asked.Store(true)
		p.executed(err, false)
		_ = p.Wait(ctx) // so that Flush does not return the error too
		return nil, p.err
	case err != nil:
		p.room = make(chan struct{})
		go func() {
			err := p.s.line.post(context.Background(), &p.flight, j.mr, &j.wrs)
			for err == errLate { // without the unlock, too: the session is over then
				if err = p.s.allowed(); err != nil {
					break
				}
				p.flight.until = p.s.until.Load()
				err = p.s.line.post(context.Background(), &p.flight, j.mr, &j.wrs)
			}
			close(p.room)
			if err != nil {
				p.executed(err, false)
			}
		}()
	}
	p.register()
	return p, nil
}

// register has Flush wait for the commit, unless it is over already.
func (p *Commit) register() {
	if p.state.Load() == commitEnded {
		return
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.state.CompareAndSwap(commitPosted, commitRegistered) {
		p.c.pending[p] = struct{}{}
	}
}

// reuse keeps the commit of a change that has been waited for, without an error, for the job's next
// one, if no other goroutine has it. It returns one that is over, for the result.
func (j *job) reuse(p *Commit) *Commit {
	if p.room != nil || !p.flight.call.Done() { // the goroutine that polls is about to end it
		return p
	}
	if p.state.Load() == commitRegistered {
		j.c.mu.Lock()
		waits := p.waits
		j.c.mu.Unlock()
		if waits > 0 {
			return p
		}
	}
	p.s, p.flight.posted = nil, false
	p.asked.Store(false)
	p.state.Store(commitPosted)
	p.over.ch.Store(nil)
	j.commit = p
	return j.c.settled
}

// executed ends the job and the commit, after the list has ended or could not be posted. wrote
// says that a WRITE was posted.
func (p *Commit) executed(err error, wrote bool) {
	if err == nil {
		err = p.j.m.Base().Settled()
	}
	if err != nil && wrote {
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
	if err != nil || !p.state.CompareAndSwap(commitPosted, commitEnded) {
		p.c.mu.Lock()
		delete(p.c.pending, p)
		if err != nil {
			p.c.failed[p] = struct{}{}
		}
		p.state.CompareAndSwap(commitPosted, commitEnded)
		p.c.mu.Unlock()
	}
	if err != nil && !asked {
		p.c.cfg.Logger.Warn("lockoffload: no call waited for a lock to be given back", "slot", p.slot, "error", err)
	}
	p.over.happen()
}
