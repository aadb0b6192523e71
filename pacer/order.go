package pacer

import (
	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// enter takes the next place in the order of posting.
func (q *QP) enter(at shaper.Request, signaled bool) int {
	i := int(q.tail % uint64(len(q.order)))
	q.tail++
	q.used++
	q.order[i] = entry{request: at, signaled: signaled}
	if !signaled {
		q.silent++
	}
	return i
}

// finished handles the end of a request.
func (q *QP) finished(at shaper.Request, complete bool) {
	r := &q.p.requests[at]
	e := &q.order[r.place]
	switch {
	case complete:
		e.wc = r.wc.WithID(r.ID, r.length)
	case r.failed && r.had:
		e.wc = r.wc.WithID(r.ID, 0)
	default:
		e.wc = driver.FlushedWC(r.ID, q.qp.Num())
	}
	if e.call = r.call; r.call != nil {
		e.call.complete = complete
	}
	e.done = true
	if !e.signaled {
		q.silent--
	}
	e.signaled = e.signaled || !complete // failures are always reported
	q.p.s.Free(at)
	r.qp, r.call = nil, nil
	if r.Bind != nil {
		r.Bind, r.binding = nil, verbs.WindowBinding{}
	}
	if e.call != nil && !complete { // it says nothing about others, and need not wait for them
		q.hand(e)
	}
	q.deliver(e)
}

// deliver hands out completions in the order of posting. The completion of a PUT may come before
// that of a READ which it overtook, unless the READ is not signaled: then it says that the
// READ is over too.
func (q *QP) deliver(e *entry) {
	if q.silent == 0 && !e.delivered {
		q.hand(e)
	}
	for i := q.head; i != q.tail; i++ {
		e := &q.order[i%uint64(len(q.order))]
		if !e.done {
			if !e.signaled {
				return
			}
			if q.silent == 0 {
				return
			}
			continue
		}
		if !e.delivered {
			q.hand(e)
		}
		if i == q.head {
			q.head++
			q.roomAgain()
		}
	}
}

func (q *QP) hand(e *entry) {
	e.delivered = true
	switch {
	case e.call != nil:
		e.call.wc = e.wc
		e.call.waiter.Wake()
		q.cq.wakeWaiters()
		q.vacate()
	case e.signaled:
		q.cq.push(&e.wc, q)
	default:
		q.vacate()
	}
}

func (c *CQ) push(wc *verbs.WC, q *QP) {
	if q != nil && q.closed {
		return
	}
	if c.size == len(c.ready) {
		more := make([]taken, max(2*len(c.ready), 256))
		for i := range c.size {
			more[i] = c.ready[(c.head+i)%len(c.ready)]
		}
		c.ready, c.head = more, 0
	}
	t := &c.ready[(c.head+c.size)%len(c.ready)]
	t.wc, t.q = *wc, q
	c.size++
	if c.waits {
		c.waiter.Wake()
		c.wakeWaiters()
	}
}

// wakeWaiters makes the active poller check its waiters again: what they wait for came without
// a completion.
func (c *CQ) wakeWaiters() {
	if !c.delivering && !c.woken {
		c.woken = true
		c.p.wakes = append(c.p.wakes, c)
	}
}

// vacate frees the place of a request that is over and has no completion left to take.
func (q *QP) vacate() {
	q.used--
	q.roomAgain()
}

func (q *QP) roomAgain() {
	if q.waiting == 0 || q.closed { // Close wakes all waiters
		return
	}
	select {
	case q.vacant <- struct{}{}:
	default:
	}
}
