package pacer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// newCall returns a call that is not in use. mu must be held.
func (p *Pacer) newCall() *call {
	c := p.calls
	if c == nil {
		return new(call)
	}
	p.calls, c.next = c.next, nil
	c.waiter.Reset()
	c.complete = false
	return c
}

// put takes back a call that is over. mu must be held.
func (p *Pacer) put(c *call) { c.next, p.calls = p.calls, c }

// Read READs a peer's memory and waits for it. If the context ends first, the pieces that were
// not posted never are. If the device has others, the error is a
// [verbs.InFlightError], and until its Done the memory belongs to the device.
func (q *QP) Read(ctx context.Context, from verbs.Remote, into ...verbs.SGE) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := work{WR: verbs.ReadWR(from, into...), class: q.class}
	w.length = length(&w.WR)
	p := q.p
	var at shaper.Request
	p.mu.Lock()
	c := p.newCall()
	var err error
	var found verbs.Polled
	now := time.Duration(0)
	if !p.s.Instant() {
		now = p.now()
	}
	for {
		if err = q.takes(); err == nil {
			err = q.batch.Check(w.WR)
		}
		if err == nil {
			at, err = q.submit(&w, c, now)
			found = q.flushAndLook()
			if driver.DispatchOwn(found, q.cq.d, q.cq.own) {
				found = verbs.Polled{}
			}
		}
		if now == 0 && !c.waiter.Woken() {
			now = p.now()
			if err == nil {
				p.s.Began(at, p.requests[at].sub, now)
			}
		}
		q.share()
		if err == nil || !errors.Is(err, verbs.ErrQueueFull) {
			break
		}
		err := q.awaitRoom(ctx)
		now = p.now()
		if err != nil {
			p.pump(now)
			p.release()
			return err
		}
	}
	p.pump(now)
	if err == nil && c.complete && c.waiter.Woken() { // mostly
		p.put(c)
		p.release()
		found.Dispatch()
		return nil
	}
	p.release()
	found.Dispatch()
	if err != nil {
		return opError("READ on", q.name, err)
	}
	err = q.cq.d.Wait(ctx, &c.waiter)
	if err != nil && !c.waiter.Woken() {
		p.mu.Lock()
		if !c.waiter.Woken() {
			p.s.Cancel(at)
		}
		p.unlock()
		_, _ = q.cq.d.Poll(0) // what has succeeded by now is a success
		if ctx.Err() != nil && !c.waiter.Woken() {
			e, end := operr.NewInFlight(opError("READ on", q.name, fmt.Errorf("%w: the device still has a part of it", ctx.Err())))
			go func() { end(q.rest(ctx, c)) }()
			return e
		}
		return q.rest(ctx, c)
	}
	if err = q.result(ctx, c); err == nil {
		p.mu.Lock()
		p.put(c)
		p.mu.Unlock()
	}
	return err
}

// rest waits until a call is over, even if its context has ended, and returns its error.
func (q *QP) rest(ctx context.Context, c *call) error {
	if lost := q.cq.d.Wait(context.WithoutCancel(ctx), &c.waiter); lost != nil {
		return opError("READ on", q.name, lost)
	}
	return q.result(ctx, c)
}

// result returns the error of a call that is over.
func (q *QP) result(ctx context.Context, c *call) error {
	if c.complete {
		return nil
	}
	p := q.p
	p.mu.Lock()
	closed := q.closed
	p.mu.Unlock()
	switch {
	case closed:
		return opError("READ on", q.name, ErrClosed)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return opError("READ on", q.name, c.wc.Err())
}

// takes returns nil if another request is taken, or the reason why not.
func (q *QP) takes() error {
	switch {
	case q.closed:
		return ErrClosed
	case q.cq.lost != nil:
		return q.cq.lost
	case q.full():
		return verbs.ErrQueueFull
	}
	return nil
}

// full reports whether the queue has no room: for requests under way or completions not taken,
// or in the order of posting.
func (q *QP) full() bool {
	return q.used >= len(q.order) || q.tail-q.head == uint64(len(q.order))
}

// share passes the token on if places are left: one token may stand for several places.
func (q *QP) share() {
	if !q.full() {
		q.roomAgain()
	}
}

// awaitRoom waits until there may be room again, or for the context's end. It is called when the
// queue is full. p.mu must be held; awaitRoom releases it meanwhile.
func (q *QP) awaitRoom(ctx context.Context) (err error) {
	p := q.p
	q.waiting++
	p.unlock()
	select {
	case <-q.vacant:
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	q.waiting--
	return err
}
