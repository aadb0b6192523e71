package verbs

import (
	"context"
	"errors"
	"time"
)

// room waits until n requests fit, and takes a slot for them.
func (r *Requester) room(ctx context.Context, what uint32, n int) (uint32, error) {
	rt := r.router
	for {
		if err := r.alive(); err != nil {
			return 0, r.refuse(what, class(WCFlushed, err))
		}
		if i, ok := r.reserve(n); ok {
			return i, nil
		}
		if int(r.credits.Load()) >= n {
			if err := r.waitForSlot(ctx); err != nil {
				return 0, r.refuse(what, err)
			}
			continue
		}
		if !rt.pollLock.Take(nil, ctx.Done()) {
			return 0, r.refuse(what, ctx.Err())
		}
		if int(r.credits.Load()) >= n || r.qp.Err() != nil {
			rt.pollLock.Release()
			continue
		}
		switch err := rt.look(ctx); {
		case ctx.Err() != nil:
			return 0, r.refuse(what, ctx.Err())
		case err != nil:
			rt.broken(err)
		}
	}
}

// waitForSlot waits until a slot is given back: by a call that has its result, or at the
// end of a [Call], for which it polls.
func (r *Requester) waitForSlot(ctx context.Context) error {
	r.starved.Store(true)
	defer r.starved.Store(false)
	if r.hasSlot() {
		return nil
	}
	if int(r.unwaited.Load()) == len(r.slots) { // and no more are made meanwhile
		select {
		case <-r.freed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
			if int(r.unwaited.Load()) < len(r.slots) { // a slot is waited for by now
				return nil
			}
			return class(ErrQueueFull, errors.New("what was started is not waited for: see Pending.Wait"))
		}
	}
	rt := r.router
	if !rt.pollLock.Take(r.freed, ctx.Done()) {
		return ctx.Err()
	}
	if r.hasSlot() {
		rt.pollLock.Release()
		return nil
	}
	err := rt.look(ctx)
	if err != nil && ctx.Err() == nil {
		rt.broken(err)
		return nil
	}
	return err
}

func (r *Requester) hasSlot() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.free) > 0
}

// reserve takes a slot if n requests fit. posting must be held.
func (r *Requester) reserve(n int) (uint32, bool) {
	if int(r.credits.Load()) < n {
		return 0, false
	}
	if s := r.spare; s != nil {
		r.spare = nil
		return s.place, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.free) - 1
	if last < 0 {
		return 0, false
	}
	i := r.free[last]
	r.free = r.free[:last]
	return i, true
}

func (r *Requester) release(i uint32) {
	r.mu.Lock()
	r.free = append(r.free, i)
	r.mu.Unlock()
	if r.starved.Load() {
		select {
		case r.freed <- struct{}{}:
		default:
		}
		r.router.cq.wake() // the posting goroutine may be the one that polls
	}
}
