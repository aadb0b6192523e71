package pacer

import (
	"context"
	"slices"
	"time"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// queue returns the CQ of a completion queue, prepared for one more queue pair.
func (p *Pacer) queue(cq *verbs.CQ) (*CQ, error) {
	c := p.queues[cq]
	if c == nil {
		c = &CQ{p: p, cq: cq, turn: make(chan struct{}, 1)}
		c.own = c.completed
		var err error
		if c.d, err = cq.Dispatch((*engine)(c), 1); err != nil { // queue pairs bring the room that they need
			return nil, err
		}
		p.queues[cq] = c
	}
	c.users++
	return c, nil
}

// leave is called when a queue pair is closed. The last one ends the routing.
func (c *CQ) leave() error {
	if c == nil {
		return nil
	}
	p := c.p
	p.mu.Lock()
	c.users--
	last := c.users == 0
	if last {
		delete(p.queues, c.cq)
	}
	p.mu.Unlock()
	if !last {
		return nil
	}
	c.d.Wake(&c.waiter)
	return c.d.Close()
}

func (c *CQ) drop(q *QP) {
	c.qps = slices.DeleteFunc(c.qps, func(other *QP) bool { return other == q })
}

// paces reports whether a queue pair with sends that complete in cq is paced already.
func (p *Pacer) paces(qp *verbs.QP, cq *verbs.CQ) bool {
	c := p.queues[cq]
	return c != nil && slices.ContainsFunc(c.qps, func(q *QP) bool { return q.qp == qp })
}

// settle returns when all completions that are there now are handed out, also the ones that
// another goroutine has taken already.
func (c *CQ) settle() {
	if d, err := c.cq.Dispatch((*engine)(c), 1); err == nil {
		d.Close()
	}
}

// take takes completions that are ready.
func (c *CQ) take(wcs []verbs.WC) (n int) {
	for n < len(wcs) && c.size > 0 {
		t := &c.ready[c.head]
		wcs[n] = t.wc
		if t.q != nil {
			t.q.vacate()
			t.q = nil
		}
		c.head = (c.head + 1) % len(c.ready)
		c.size--
		n++
	}
	return n
}

// Poll takes completions that are there, as [verbs.CQ.Poll] does.
func (c *CQ) Poll(wcs []verbs.WC) (int, error) { return c.PollSpin(wcs, 0) }

// PollSpin is Poll, repeated up to spins times while there are no completions and no other
// goroutine polls.
func (c *CQ) PollSpin(wcs []verbs.WC, spins int) (int, error) {
	c.p.mu.Lock()
	n := c.take(wcs)
	c.p.mu.Unlock()
	if n > 0 || len(wcs) == 0 {
		return n, nil
	}
	for {
		polled, err := c.d.Poll(spins)
		c.p.mu.Lock()
		n = c.take(wcs)
		c.p.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case err != nil || polled == 0:
			return 0, err
		}
	}
}

// Wait waits for completions, as [verbs.CQ.Wait] does. A second concurrent Wait waits
// for the first one to end.
func (c *CQ) Wait(ctx context.Context, wcs []verbs.WC) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	select {
	case c.turn <- struct{}{}: // which costs a fraction of a choice between two
	default:
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	defer func() { <-c.turn }()
	p := c.p
	for {
		p.mu.Lock()
		n := c.take(wcs)
		switch {
		case n > 0 || len(wcs) == 0:
			p.mu.Unlock()
			return n, nil
		case c.lost != nil:
			p.mu.Unlock()
			c.losing.Do(func() {}) // the device has the memory until that is over
			return 0, c.lost
		case c.users == 0:
			p.mu.Unlock()
			return 0, opError("wait for", "completion queue", ErrClosed)
		}
		c.waits = true
		c.waiter.Reset()
		p.mu.Unlock()
		err := c.d.Wait(ctx, &c.waiter)
		p.mu.Lock()
		c.waits = false
		n = c.take(wcs)
		p.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// engine brings completions to the shaper.
type engine CQ

// Completed implements [verbs.Handler]: it posts the requests that the credit lets go.
func (e *engine) Completed(tag uint64, wc *verbs.WC) {
	c := (*CQ)(e)
	c.p.mu.Lock()
	c.completed(tag, wc)
	c.p.release()
}

// completed takes a completion. p.mu must be held.
func (c *CQ) completed(tag uint64, wc *verbs.WC) {
	p := c.p
	c.delivering = true
	p.came++
	now := time.Duration(0)
	if tag&recvTag != 0 || wc.Status() != verbs.WCSuccess || !p.s.Timeless(shaper.Sub(tag)) {
		now = p.now()
	}
	switch {
	case tag&recvTag != 0:
		c.received(tag, wc)
	case wc.Status() == verbs.WCSuccess:
		if at, ok := p.s.Completed(shaper.Sub(tag), now); ok {
			if r := &p.requests[at]; !r.failed {
				r.wc, r.had = *wc, true
			}
		}
	default:
		if at, ok := p.s.RequestOf(shaper.Sub(tag)); ok {
			p.requests[at].qp.fail(shaper.Sub(tag), wc)
		}
	}
	p.pump(now)
	c.delivering = false
}

// Lost implements [verbs.Handler]. When it returns the device has no request of the queue any
// more, and all calls are over.
func (e *engine) Lost(err error) {
	c := (*CQ)(e)
	c.losing.Do(func() { c.lose(err) })
}

func (c *CQ) lose(err error) {
	p := c.p
	p.mu.Lock()
	c.lost = err
	qps := slices.Clone(c.qps)
	for _, q := range qps {
		p.s.Down(q.flow)
	}
	p.release()
	for _, q := range qps {
		_ = q.qp.Quiesce() // an error says that the queue pair or its device is gone
	}
	p.mu.Lock()
	for _, q := range qps {
		if !q.closed {
			p.s.FailAll(q.flow, false)
			p.s.Abandon(q.flow)
		}
	}
	c.waiter.Wake()
	c.wakeWaiters()
	p.unlock()
}
