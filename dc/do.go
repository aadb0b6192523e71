package dc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/alarm"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// call is a call of Do, or of Wait of [Pending].
type call struct {
	waiter verbs.Waiter
	err    error // the first one
	left   int   // requests that have not ended
	next   *call // that is not in use
}

// linger is how long Do waits for a request that the device has when the context
// is over, before it takes the session down.
const linger = time.Second

// Do carries out one request and returns its error, in the order of posting with
// others of the same target. Any number of goroutines may call it; each gets the
// result of its own request, and none of those comes to Poll. When it has
// returned, the device touches the request's memory no more, unless the error is a
// [verbs.InFlightError].
//
// A context that ends takes a request back that still waits for its target, or waits
// for it again. If the device has the request, Do returns a [verbs.InFlightError] at once:
// the memory is the device's until that is done. If that takes more than a
// second, the session is taken down: with hardware the DCI, unless there are requests to
// other targets in it that are still waited for. A request that succeeded is a success,
// whatever became of the context. With a context that has ended before, Do does nothing.
func (i *Initiator) Do(ctx context.Context, p *Peer, r Request) error {
	if err := ctx.Err(); err != nil {
		return opError("do request of", p.name(), err)
	}
	i.mu.Lock()
	c := i.newCall(1)
	r.Quiet = false
	_, _, found, err := i.give(p, []Request{r}, c, 0)
	i.polling++
	if !driver.DispatchOwn(found, i.d, i.own) {
		i.mu.Unlock() // found has the poll lock, with which the back end must do nothing that takes time
		found.Dispatch()
		i.mu.Lock()
	}
	i.polling--
	over := err != nil || c.left == 0 // mostly
	if err == nil {
		err = c.err
	}
	if over {
		i.release(c)
	} else {
		i.doers = append(i.doers, &c.waiter)
	}
	i.unlock()
	if over {
		return err
	}
	return i.finishWait(ctx, p, c)
}

// finishWait waits for a call's requests, with its waiter among the doers, and releases the
// call. If the context ends while the device has requests, a goroutine does that instead, and
// the error is a [verbs.InFlightError].
func (i *Initiator) finishWait(ctx context.Context, p *Peer, c *call) error {
	over, err := i.await(ctx, ctx, p, c)
	switch {
	case over:
	case ctx.Err() == nil: // the queue is broken
		err = i.linger(ctx, p, c)
	default:
		e, end := operr.NewInFlight(opError("do request of", p.addr.String(), fmt.Errorf("%w: the device still has the request", ctx.Err())))
		go func() {
			err := i.linger(ctx, p, c)
			i.letGo(c)
			end(err)
		}()
		return e
	}
	i.letGo(c)
	return err
}

func (i *Initiator) letGo(c *call) {
	i.mu.Lock()
	i.doers = remove(i.doers, &c.waiter)
	i.release(c)
	i.unlock()
}

// newCall returns a call that waits for n requests. mu must be held.
func (i *Initiator) newCall(n int) *call {
	c := i.calls
	if c == nil {
		c = &call{}
	} else {
		i.calls = c.next
	}
	c.left, c.err = n, nil
	c.waiter.Reset()
	return c
}

func (i *Initiator) release(c *call) { c.next, i.calls = i.calls, c }

// linger waits for the requests of a call after the end of its context.
func (i *Initiator) linger(caller context.Context, p *Peer, c *call) error {
	for {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), linger)
		over, err := i.await(ctx, caller, p, c)
		cancel()
		if over {
			return err
		}
		i.mu.Lock()
		if c.left > 0 && i.usable() == nil { // not over meanwhile
			i.be.abort(p)
		}
		i.unlock()
	}
}

// await waits for the requests of a call until ctx ends, and reports whether they are over.
// When the caller's context has ended, it takes back those that wait for their target.
func (i *Initiator) await(ctx, caller context.Context, p *Peer, c *call) (over bool, _ error) {
	for polled := false; ; {
		err := i.d.Wait(ctx, &c.waiter)
		i.mu.Lock()
		switch {
		case c.left == 0:
			err := c.err
			i.unlock()
			return true, err
		case i.usable() != nil:
			err := i.usable()
			i.mu.Unlock()
			<-i.halted // before that the device has the memory
			return true, opError("wait for", p.addr.String(), err)
		case caller.Err() != nil && i.takeBack(p, func(e *entry) bool { return e.call == c }, opError("do request of", p.addr.String(), caller.Err())) > 0:
			// It is over now.
		case err == nil: // there is something to do
			c.waiter.Reset()
		case !polled: // what has succeeded by now is a success
			polled = true
			i.unlock()
			_, _ = i.d.Poll(0)
			continue
		default:
			i.unlock()
			return false, nil
		}
		i.unlock()
	}
}

// takeBack ends those requests that wait for a target for which is returns true, and
// returns their number.
func (i *Initiator) takeBack(p *Peer, is func(*entry) bool, err error) (n int) {
	if p.a == nil {
		return 0
	}
	rest := p.a.queue[:0]
	var out []entry
	for k := range p.a.queue {
		if e := &p.a.queue[k]; is(e) {
			out = append(out, *e)
		} else {
			rest = append(rest, *e)
		}
	}
	if len(out) == 0 {
		return 0
	}
	clear(p.a.queue[len(rest):])
	p.a.queue = rest
	i.be.withdrawn(p, len(out))
	i.outside++
	for k := range out {
		i.finish(&out[k], err)
	}
	i.outside--
	i.roomAgain(p)
	return len(out)
}

// Cancel takes back the requests of that ID which still wait for their target, and
// returns their number. They end with [ErrCanceled]; those that the device has go on.
func (i *Initiator) Cancel(p *Peer, id uint64) (int, error) {
	i.mu.Lock()
	if err := i.mine(p); err != nil {
		i.mu.Unlock()
		return 0, opError("cancel request of", p.name(), err)
	}
	n := i.takeBack(p, func(e *entry) bool { return e.ID == id && e.call == nil }, opError("do request of", p.addr.String(), ErrCanceled))
	i.unlock()
	return n, nil
}

// Flush waits until all requests of a target have ended that were posted before,
// by any goroutine. It does not report how: completions do.
func (i *Initiator) Flush(ctx context.Context, p *Peer) error {
	if err := ctx.Err(); err != nil {
		return opError("flush", p.name(), err)
	}
	i.mu.Lock()
	if err := i.mine(p); err != nil {
		i.mu.Unlock()
		return opError("flush", p.name(), err)
	}
	a := p.a
	if a == nil || a.posted == a.ended {
		i.mu.Unlock()
		return nil
	}
	f := &flush{mark: a.posted, left: a.posted - a.ended}
	a.flushes = append(a.flushes, f)
	i.doers = append(i.doers, &f.waiter)
	i.unlock()
	for {
		err := i.d.Wait(ctx, &f.waiter)
		i.mu.Lock()
		over := f.left == 0
		if err == nil && !over {
			err = i.usable()
			f.waiter.Reset()
		}
		if over || err != nil {
			i.doers = remove(i.doers, &f.waiter)
			a.flushes = slices.DeleteFunc(a.flushes, func(other *flush) bool { return other == f })
		}
		i.unlock()
		switch {
		case over:
			return nil
		case err != nil:
			return opError("flush", p.addr.String(), fmt.Errorf("requests are under way: %w", err))
		}
	}
}

// time makes waiting requests of a peer end in time.
func (i *Initiator) time(p *Peer, at time.Duration) {
	if !p.a.timed {
		p.a.timed = true
		i.timed = append(i.timed, p)
	}
	i.expiry.Set(at, i.now())
}

// expire ends requests that have waited for too long.
func (i *Initiator) expire() { i.step(i.expireLocked) }

func (i *Initiator) expireLocked() {
	now, next := i.now(), alarm.Never
	rest := i.timed[:0]
	for _, p := range i.timed {
		i.takeBack(p, func(e *entry) bool { return e.deadline != 0 && e.deadline <= now }, opError("post to", p.addr.String(), fmt.Errorf("%w: it waited for its target", ErrTimeout)))
		p.a.timed = false
		for k := range p.a.queue {
			if at := p.a.queue[k].deadline; at != 0 {
				next, p.a.timed = min(next, at), true
			}
		}
		if p.a.timed {
			rest = append(rest, p)
		}
	}
	clear(i.timed[len(rest):])
	i.timed = rest
	if next < alarm.Never {
		i.expiry.Set(next, now)
	}
}
