package verbs

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/internal/operr"
)

// deliver is [routed]'s.
func (r *Requester) deliver(id uint64, wc *WC) bool {
	i := id >> 24 & (maxSlots - 1)
	if i >= uint64(len(r.slots)) {
		return false
	}
	s := &r.slots[i]
	if s != r.current && !s.flying.Load() || uint32(id>>1)&genMask != s.gen&genMask {
		return false
	}
	if wc.wc.Status != uint32(WCSuccess) && s.err == nil {
		s.err = r.failure(s, wc)
	}
	if id&1 != 0 {
		r.end(s)
	}
	return true
}

// failure returns the error of a request that failed.
func (r *Requester) failure(s *slot, wc *WC) error {
	life, cause := r.qp.lived()
	if wc.Status() != WCFlushed {
		err := r.refuse(s.what, wc.Err())
		if cause == nil {
			r.qp.terminate(err)
		}
		return err
	}
	if cause == nil {
		s.life = life
		return errUnexplained
	}
	return r.refuse(s.what, class(WCFlushed, cause))
}

// result returns the error of a slot that is over.
func (r *Requester) result(s *slot) error {
	if s.err != errUnexplained {
		return s.err
	}
	return r.refuse(s.what, class(WCFlushed, r.qp.explain(s.life)))
}

// end ends a slot, with the poll lock. It makes room in the queue before the slot's owner is
// woken, which has the slot afterwards.
func (r *Requester) end(s *slot) {
	current := s == r.current
	if current {
		r.current = nil
	} else {
		r.credits.Add(s.size)
	}
	switch {
	case s.call != nil:
		r.endCall(s, current)
	case !current:
		s.ending.end()
	}
}

// await waits until a slot is over, frees it and returns its result, for an atomic the old
// value of the word. If the context ends before, the error is an [InFlightError], and
// a goroutine owns the slot: it waits, and frees the slot. A slot is free, and its memory the
// caller's again, only when the completion of its last request has been taken.
func (r *Requester) await(ctx context.Context, s *slot) (old uint64, err error) {
	left := false
	defer func() {
		if !left {
			r.release(s.place)
		}
	}()
	if s.flying.Load() && !r.waitUnder(ctx, s) {
		left = true
		e, end := operr.NewInFlight(r.refuse(s.what, ctx.Err(), "the device still has the request", s.mayLack()))
		go r.awaitLeft(ctx, s, end)
		return 0, e
	}
	return r.taken(s)
}

// awaitLeft owns a slot after its caller has returned.
func (r *Requester) awaitLeft(ctx context.Context, s *slot, end func(error)) {
	var err error
	defer func() { end(err) }()
	defer r.release(s.place)
	defer func() { _, err = r.taken(s) }() // also if another request's function ends this goroutine
	r.waitFor(ctx, s)
}

// taken returns the result of a slot that is over.
func (r *Requester) taken(s *slot) (old uint64, err error) {
	if err := r.result(s); err != nil {
		return 0, err
	}
	old, err = r.found(s)
	if err != nil {
		r.takeDown(err)
	}
	return old, err
}

// mayLack returns what a request may wait for at the peer, as the end of an error's detail.
func (s *slot) mayLack() string {
	switch s.what {
	case opSend, opSendImm, opSendInv, opWriteImm:
		return "; the peer may have posted no receive"
	}
	return ""
}

// waitUnder waits until a slot is over, and reports false if the context ends before. If
// a function of another list panics in it, it waits all the same: the memory is still the device's.
func (r *Requester) waitUnder(ctx context.Context, s *slot) bool {
	rt := r.router
	returned := false
	defer func() {
		if !returned && s.flying.Load() {
			r.waitFor(ctx, s)
		}
	}()
	for s.flying.Load() {
		var err error
		if rt.pollLock.Try() || s.listen(ctx, rt) {
			err = s.look(ctx, rt)
		}
		switch {
		case !s.flying.Load():
		case ctx.Err() != nil:
			if rt.pollLock.Try() { // what has succeeded by now is a success
				_ = rt.pollOnceLocked()
			}
			returned = true
			return !s.flying.Load()
		case err != nil:
			rt.broken(err)
		}
	}
	returned = true
	return true
}

// waitFor waits until a slot is over, also after the context has ended: then the queue pair
// is taken down if the device takes longer than Linger.
func (r *Requester) waitFor(ctx context.Context, s *slot) {
	if r.waitUnder(ctx, s) {
		return
	}
	always := context.WithoutCancel(ctx)
	if r.linger > 0 {
		limited, cancel := context.WithTimeout(always, r.linger)
		defer cancel()
		if r.waitUnder(limited, s) {
			return
		}
		life, _ := r.qp.lived()
		if !s.flying.Load() {
			return
		}
		r.takeDownIn(life, r.refuse(s.what, context.Cause(ctx), "the device was not done with it ", r.linger, " after its context had ended", s.mayLack()))
	}
	r.waitUnder(always, s)
}

// takeDown flushes everything that is under way, for that cause. The poll lock must
// not be held. Where the device does not flush, the queue pair is reset: that ends
// its use of memory too.
func (r *Requester) takeDown(cause error) {
	if r.closed.Load() { // Close does so
		return
	}
	r.flush(r.qp.terminate(cause), cause)
}

// takeDownIn is takeDown for what is under way in that life of the queue pair.
func (r *Requester) takeDownIn(life uint32, cause error) {
	r.qp.terminateIn(life, cause)
	r.flush(life, cause)
}

// flush is takeDown for a queue pair that died in that life of it. In another
// it is left alone.
func (r *Requester) flush(life uint32, cause error) {
	r.down.Lock()
	defer r.down.Unlock()
	finish(func() {
		if err := r.router.reclaim(r.qp, life, r.busy); err != nil && !errors.Is(err, errRevived) {
			r.hold() // the device is gone, and touches nothing any more
			defer r.unhold()
			r.cut(errors.Join(cause, err))
		}
	})
}

// flushBeside is flush in a goroutine of its own. Where the requester is being closed, Close
// flushes, so that what Ended does happens in a known goroutine.
func (r *Requester) flushBeside(life uint32, cause error) {
	if !r.closed.Load() {
		r.flush(life, cause)
	}
}

// cut ends what is under way in a queue pair that was reset.
func (r *Requester) cut(cause error) {
	rt := r.router
	rt.hold()
	defer rt.pollLock.Release()
	finish(func() {
		drained := rt.pollAll() // what had succeeded did
		for i := range r.slots {
			if s := &r.slots[i]; s.flying.Load() {
				r.cutOff = r.cutOff || !drained
				s.err = r.refuse(s.what, class(WCFlushed, cause))
				r.end(s)
			}
		}
	})
}
