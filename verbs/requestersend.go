package verbs

import (
	"context"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
)

// send posts the batch, which has the list of a slot. over reports that the list has ended.
// posting must be held.
func (r *Requester) send(ctx context.Context, s *slot, n int, spins uint32) (over bool, err error) {
	waits := s.call == nil // once it is in flight, the slot of a call may be another's
	if !waits {
		s.call.r = r
	}
	if r.router.try() {
		if !r.holding.Load() {
			return r.sendAndPoll(ctx, s, n, spins)
		}
		r.router.pollLock.Release()
	}
	r.sending.Lock()
	posted := 0
	if s.call != nil && !s.call.mayPost() {
		err = r.batch.ended(r.batch.postError(syscall.ETIME))
	} else {
		r.publish(s)
		if posted, err = r.batch.Post(); posted == 0 && err != nil { // nothing is under way
			s.flying.Store(false)
			r.credits.Add(s.size)
		}
	}
	r.sending.Unlock()
	return r.sent(ctx, s, waits, n, posted, -1, err)
}

// hold keeps lists from being posted until unhold is called.
func (r *Requester) hold() {
	r.sending.Lock()
	r.holding.Store(true)
	r.router.hold() // the goroutine that had the poll lock may have been posting
	r.router.pollLock.Release()
}

func (r *Requester) unhold() {
	r.holding.Store(false)
	r.sending.Unlock()
}

// sendAndPoll is send with the poll lock, which it releases.
func (r *Requester) sendAndPoll(ctx context.Context, s *slot, n int, spins uint32) (over bool, err error) {
	rt := r.router
	var times *cgo.Times
	if c := s.call; c != nil && c.readsClock() {
		times = &c.times
	}
	r.current = s
	posted, got, err := r.batch.postPoll(rt, rt.cq, rt.wcs[:], spins, times)
	if posted == 0 && err != nil {
		r.current = nil
	}
	if wc := &rt.wcs[0].wc; got == 1 && err == nil && wc.ID == r.batch.wrs[n-1].ID && wc.Status == uint32(WCSuccess) {
		r.current = nil
		r.endAlone(s)
		return true, nil
	}
	return r.sent(ctx, s, s.call == nil, n, posted, got, err)
}

// endAlone ends a list that has succeeded, before another goroutine knows of it, when the poll has found nothing
// else. It releases the poll lock.
func (r *Requester) endAlone(s *slot) {
	if s.call == nil { // and no function of the program is called
		r.router.pollLock.Release()
		return
	}
	defer r.router.pollLock.Release()
	r.settle(s, true)
}

// handOut delivers the first n completions of the router's, and releases the poll lock. over
// reports that the current list is over.
func (r *Requester) handOut(n int) (over bool) {
	published := false
	defer func() { // also if another request's function panics, and its failure looked for lists in flight before
		if !published {
			return
		}
		if life, cause := r.qp.ended(); cause != nil {
			go r.flushBeside(life, cause)
		}
	}()
	defer r.router.pollLock.Release()
	defer func() {
		if s := r.current; s != nil {
			r.current, published = nil, true
			r.publish(s)
		}
	}()
	r.router.deliver(r.router.wcs[:n])
	return r.current == nil
}

// publish puts a slot in flight.
func (r *Requester) publish(s *slot) {
	if c := s.call; c != nil {
		c.times.Over = 0
		c.flying.Store(true)
	}
	select {
	case <-s.token: // left over
	default:
	}
	s.flying.Store(true)
	r.credits.Add(-s.size)
}

// sent follows a post of n requests, of which some were taken, and delivers what a poll with the poll lock has found,
// if got is not below 0. It returns an error if nothing of the list is under way; then the slot is free. waits says that
// the caller waits for the slot: there is no call.
func (r *Requester) sent(ctx context.Context, s *slot, waits bool, n, posted, got int, err error) (over bool, _ error) {
	returned := false
	defer func() {
		if !returned && waits { // another's function panicked, and there is no one to wait
			defer r.release(s.place)
			r.waitFor(ctx, s)
		}
	}()
	if got >= 0 {
		over = r.handOut(got)
	}
	err = r.under(s, n, posted, err)
	returned = true
	return over, err
}

// under returns an error if nothing of a list of n requests, of which some were posted, is under way, and frees its
// slot then. Otherwise the list ends in any case.
func (r *Requester) under(s *slot, n, posted int, err error) error {
	switch {
	case posted == 0 && err != nil:
		if c := s.call; c != nil {
			s.call = nil
			c.flying.Store(false)
		}
		r.release(s.place)
		return err
	case err == nil:
		if life, cause := r.qp.ended(); cause != nil { // this may have been posted after the flush
			go r.flushBeside(life, cause)
		}
		return nil
	case posted < n:
		// What was posted gets no completion of its own. It is known to be over
		// when all of the queue is.
		r.takeDown(err)
		return nil
	}
	r.router.broken(err)
	return nil
}
