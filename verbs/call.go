package verbs

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cgo"
)

// Call is a list that [Requester.Go] posts, for programs with lists that outlive a wait:
// the wait may end, and begin again, while the list stays under way. The zero value is ready.
// The program may use a Call again, for any requester, once the list is over and no
// goroutine waits for it, but must not copy or overwrite it. Waiting for a new call while
// other goroutines poll allocates.
type Call struct {
	// Then, if it is set, is called at the end.
	Then CompletionHandler

	ending
	r   *Requester
	err error // once over

	times cgo.Times // see [driver.Clock]
}

// CompletionHandler is called at the end of a list, by the goroutine that polls.
type CompletionHandler interface {
	// Ended is called once for each list for which [Requester.Go] returned nil, before
	// waiting goroutines are woken, and perhaps before Go returns. By then the memory is
	// the program's again. The error is nil if all of the list was executed.
	//
	// The result of Ended becomes the error of the call. If Ended returns an error for a
	// list that succeeded, because the results are not there or cannot be right, the
	// queue pair ends with that error.
	//
	// Other lists wait meanwhile. Ended must not wait, and must not call methods of the
	// requester, of its queue pair or of calls. Goroutines that it starts may do so when [Requester.Go] has returned.
	Ended(err error) error
}

// Go posts a list of requests, waiting for room in the queue as [Requester.Do] does,
// and leaves it under way. After an error nothing of the list will be executed, and Then
// is not called. Otherwise the memory that the list names belongs to the device until
// the call is over: contexts end waits, not lists. If a list has to end, because the peer
// has been silent for too long, [QP.ToError] or [Requester.Close] ends it, together with
// all others.
//
// Go polls once for the end of this or any other list. After that the program has to
// poll: [Call.Wait] does, and so does everything else that waits for a requester of the
// same completion queue. No goroutine polls by itself.
func (r *Requester) Go(ctx context.Context, c *Call, list ...WR) error {
	if c == nil {
		err := r.alive()
		if err == nil {
			err = class(ErrAttributes, errors.New("no call"))
		}
		return r.refuse(opList, err)
	}
	if c.flying.Load() {
		return r.refuse(opList, class(ErrState, errUnderWay))
	}
	_, err := r.begin(ctx, list, 0, false, c)
	if err != nil && !errors.Is(err, errUnderWay) {
		c.r, c.err = nil, nil // what it had been used for is not this list's result
	}
	return err
}

var errUnderWay = errors.New("the call is under way")

// Done reports whether the list is over, or was not posted.
func (c *Call) Done() bool { return !c.flying.Load() }

// Wait waits until the list is over and returns its error. If the context ends before
// that, Wait returns the context's error as it is, the list stays under way and
// [Call.Done] is false. Any number of goroutines may call Wait, repeatedly, after Go has
// returned. After an error of Go there is nothing to wait for, and Wait returns
// [ErrState].
func (c *Call) Wait(ctx context.Context) error {
	if c.r == nil {
		return opError("wait for", "list", ErrState, "it was not started")
	}
	for c.flying.Load() {
		err := c.lookOrListen(ctx)
		switch {
		case !c.flying.Load():
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			c.r.router.broken(err)
		}
	}
	return c.err
}

// clock is [driver.Clock].
func (c *Call) clock(on, bound bool) { c.times.Ends, c.times.Bound = on, bound }

// limit is [driver.Limit].
func (c *Call) limit(until time.Duration) { c.times.Until = int64(until) }

// readsClock reports whether the times of the next list are asked for, or there is a limit.
func (c *Call) readsClock() bool { return c.times.Ends || c.times.Until != 0 }

// mayPost reads the clock for a post without a poll, and reports whether the post is in time.
func (c *Call) mayPost() bool {
	if !c.readsClock() {
		return true
	}
	c.times.Posted = cgo.Boottime()
	return c.times.Until == 0 || c.times.Posted < c.times.Until
}

// clocked is [driver.Times].
func (c *Call) clocked() (posted, over time.Duration) {
	return time.Duration(c.times.Posted), time.Duration(c.times.Over)
}

func (c *Call) lookOrListen(ctx context.Context) error {
	rt := c.r.router
	if rt.pollLock.Try() {
		return c.look(ctx, rt)
	}
	c.r.mu.Lock()
	if c.token == nil { // the first goroutine that has to wait while another polls
		c.token = make(chan struct{}, 1)
	}
	c.r.mu.Unlock()
	if c.listen(ctx, rt) {
		return c.look(ctx, rt)
	}
	return nil
}

// endCall is the end of a slot that a call has. current says that the goroutine that posts the
// list calls it: then neither slot nor call is in flight, and the next post may have the slot at once.
func (r *Requester) endCall(s *slot, current bool) {
	if !current {
		s.flying.Store(false)
	}
	if s.err != errUnexplained {
		r.settle(s, current)
		return
	}
	s.call.flying.Store(true)
	go func() { // to find out may take a moment
		defer r.router.cq.wake() // a waiter of the call may be polling, with nothing under way
		r.settle(s, false)
	}()
}

// settle gives a call its result, with the poll lock or later. Afterwards the slot is free.
func (r *Requester) settle(s *slot, current bool) {
	c, err := s.call, r.result(s)
	failed, returned := err != nil, false
	defer func() {
		if !returned {
			err = errNoReturn
		}
		if err != nil && !failed {
			r.qp.terminate(r.refuse(s.what, err))
		}
		c.err = err
		s.call = nil
		if current {
			r.spare = s
		} else {
			c.end()
			r.release(s.place)
		}
	}()
	if c.Then != nil {
		err = c.Then.Ended(err)
	}
	returned = true
}
