package verbs

import (
	"context"
	"errors"
)

// deliver is [routed]'s.
func (r *Requester) deliver(id uint64, wc *WC) bool {
	i := id >> 24 & (mostSlots - 1)
	if i >= uint64(len(r.slots)) {
		return false
	}
	s := &r.slots[i]
	if !s.flying.Load() || uint32(id>>1)&genMask != s.gen&genMask {
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

// failure is the error of a request that failed.
func (r *Requester) failure(s *slot, wc *WC) error {
	life, cause := r.qp.lived()
	if wc.Status() != WCFlushed {
		err := r.refuse(s.what, wc.Err())
		if cause == nil {
			r.qp.die(err)
		}
		return err
	}
	if cause == nil {
		s.life = life
		return errUnexplained
	}
	return r.refuse(s.what, class(WCFlushed, cause))
}

// result is the error of a slot that is over.
func (r *Requester) result(s *slot) error {
	if s.err != errUnexplained {
		return s.err
	}
	return r.refuse(s.what, class(WCFlushed, r.qp.explain(s.life)))
}

// end is a slot's end, in turn or before anybody else knows of it. There is room
// in the queue before the slot's owner can know, who has the slot afterwards.
func (r *Requester) end(s *slot) {
	r.credits.Add(s.size)
	if s.call == nil {
		s.ending.end()
	} else {
		r.endCall(s)
	}
}

// await waits until a slot is over, frees it and answers its error.
func (r *Requester) await(ctx context.Context, s *slot) error {
	defer r.release(s.place)
	if s.flying.Load() {
		r.waitFor(ctx, s)
	}
	return r.result(s)
}

func (r *Requester) waitFor(ctx context.Context, s *slot) {
	rt := r.router
	lingering := false
	defer func() {
		if s.flying.Load() { // another's function panicked: the memory is still the device's
			r.waitFor(ctx, s)
		}
	}()
	for s.flying.Load() {
		var err error
		if rt.turn.Try() || s.listen(ctx, rt) {
			err = s.look(ctx, rt)
		}
		ended := ctx.Err() != nil // asked once: it may end at any time
		switch {
		case !s.flying.Load():
		case ended && !lingering && r.linger > 0:
			lingering = true
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), r.linger, context.Cause(ctx))
			defer cancel()
		case ended && !lingering:
			lingering, ctx = true, context.WithoutCancel(ctx)
		case ended:
			life, _ := r.qp.lived()
			if !s.flying.Load() {
				return
			}
			r.takeDownIn(life, r.refuse(s.what, context.Cause(ctx), "the device was not done with it ", r.linger, " after its context had ended"))
			ctx = context.WithoutCancel(ctx)
		case err != nil:
			rt.broken(err)
		}
	}
}

// takeDown has everything that is under way flushed, for that reason. The caller
// has not the turn to poll. Where the device does not flush, the queue pair is
// reset: that ends its use of memory too.
func (r *Requester) takeDown(cause error) {
	if r.closed.Load() { // Close does so
		return
	}
	r.flush(r.qp.die(cause), cause)
}

// takeDownIn is takeDown of what is under way in that life of the queue pair.
func (r *Requester) takeDownIn(life uint32, cause error) {
	r.qp.dieIn(life, cause)
	r.flush(life, cause)
}

// flush is takeDown for a queue pair that died in that life of it. In another
// it is left alone.
func (r *Requester) flush(life uint32, cause error) {
	r.down.Lock()
	defer r.down.Unlock()
	finish(func() {
		if err := r.router.reclaim(r.qp, life, r.busy); err != nil && !errors.Is(err, errRevived) {
			r.sending.Lock() // the device is gone, and touches nothing any more
			defer r.sending.Unlock()
			r.cut(errors.Join(cause, err))
		}
	})
}

// cut ends what is under way in a queue pair that was reset.
func (r *Requester) cut(cause error) {
	rt := r.router
	rt.hold()
	defer rt.turn.Release()
	finish(func() {
		drained := rt.glanceAll() // what had succeeded did
		for i := range r.slots {
			if s := &r.slots[i]; s.flying.Load() {
				r.cutOff = r.cutOff || !drained
				s.err = r.refuse(s.what, class(WCFlushed, cause))
				r.end(s)
			}
		}
	})
}
