package verbs

import (
	"context"
	"errors"
)

// Call is a list that [Requester.Go] has executed, for programs to which a list
// outlives the wait for it: the wait may end, and begin again, while the list
// stays under way. The zero value is ready. A Call is its program's, which may use
// it again, for any requester, once the list is over and nobody waits any more, but
// must not copy or overwrite it. Who waits for a new call while others poll allocates.
type Call struct {
	// Then is told of the end, if it is set.
	Then Ender

	ending
	r   *Requester
	err error // once over
}

// Ender is told of the end of a list by whoever polls.
type Ender interface {
	// Ended is called once for each list of which [Requester.Go] answered nil,
	// before those who wait hear of the end, and perhaps before Go returns. By then
	// the memory is the program's again. The error is nil if all of the list was
	// executed.
	//
	// What Ended answers becomes the error of the call. Who answers an error for a
	// list that succeeded, because the results are not there or cannot be, has the
	// queue pair end with it.
	//
	// Other lists wait meanwhile. Ended must not wait, and must not call methods of
	// the requester, of its queue pair or of calls; goroutines that it starts may.
	Ended(err error) error
}

// Go posts a list that build makes, waiting for room in the queue as [Requester.Do]
// does, and leaves it under way. An error says that nothing of the list will be
// executed, and Then is not told. Otherwise the memory that the list names is the
// device's until the call is over: contexts end waits, not lists. A list that has to
// end, because the peer is silent for too long, is ended by [QP.ToError] or
// [Requester.Close], together with all others.
//
// Go looks once whether the list, or any other, is over already. Later somebody has
// to look: [Call.Wait], and everything else that waits for a requester of the same
// completion queue. No goroutine does so by itself.
func (r *Requester) Go(ctx context.Context, c *Call, build func(*List)) error {
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
	_, err := r.begin(ctx, build, 0, false, c)
	if err != nil && !errors.Is(err, errUnderWay) {
		c.r, c.err = nil, nil // what it had been used for is not this list's result
	}
	return err
}

var errUnderWay = errors.New("the call is under way")

// Over tells whether the list is over, or was not posted.
func (c *Call) Over() bool { return !c.flying.Load() }

// Wait waits until the list is over and answers its error. If the context ends
// before that, Wait answers the context's error as it is, the list stays under way
// and [Call.Over] is false. It may be called again, and by any number of goroutines,
// after Go has returned. After an error of Go there is nothing to wait for: [ErrState].
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

func (c *Call) lookOrListen(ctx context.Context) error {
	rt := c.r.router
	if rt.turn.Try() {
		return c.look(ctx, rt)
	}
	c.r.mu.Lock()
	if c.token == nil { // of those who have to wait for others, the first one
		c.token = make(chan struct{}, 1)
	}
	c.r.mu.Unlock()
	if c.listen(ctx, rt) {
		return c.look(ctx, rt)
	}
	return nil
}

// endCall is the end of a slot that a call has.
func (r *Requester) endCall(s *slot) {
	s.flying.Store(false)
	if s.err != errUnexplained {
		r.settle(s)
		return
	}
	go func() { // to find out may take a moment
		r.settle(s)
		r.router.cq.wake() // who waits for the call may be polling, with nothing under way
	}()
}

// settle gives a call its answer, in turn or later. Afterwards the slot is free.
func (r *Requester) settle(s *slot) {
	c, err := s.call, r.result(s)
	if c.Then != nil {
		failed := err != nil
		if err = c.Then.Ended(err); err != nil && !failed {
			r.qp.die(r.refuse(s.what, err))
		}
	}
	c.err = err
	c.end()
	s.call = nil
	r.release(s.place)
}
