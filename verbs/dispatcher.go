package verbs

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// Handler is a protocol's own code. It posts requests to many queue pairs, or to queue
// pairs that it resets and reconnects, and wants their completions by tag. Programs that
// share one queue pair should use a [Requester] or a [Receiver].
type Handler interface {
	// Completed takes the completion of the request that was posted under [Dispatcher.ID]
	// of that tag. The polling goroutine calls it, for one completion at a time, in the
	// order of the queue; the completion is valid until Completed returns. All other
	// goroutines wait meanwhile. So Completed must not wait for anything except locks
	// that are never held while calling the dispatcher, and must not call the
	// dispatcher, except for [Waiter.Wake].
	Completed(tag uint64, wc *WC)
	// Lost is called, perhaps several times, when the queue can no longer be polled:
	// requests under way will not complete. It may wait, and may close queue pairs.
	Lost(err error)
}

// Dispatcher delivers completions to a [Handler]. Any number of handlers, requesters and
// receivers can share a completion queue; a goroutine that waits for one of them polls
// for all.
//
//	d, err := cq.Dispatch(handler, depth)
//	b, err := d.NewBatch(qp, 16)
//	b.Read(d.ID(tag), verbs.Signaled, remote, sge)
//	n, found, err := d.PostPoll(b, 0)
//	found.Dispatch() // handler.Completed(tag, wc), perhaps
//	err = d.Wait(ctx, &waiter) // until the handler calls waiter.Wake()
//
// While a queue is dispatched, polling it directly is refused with [ErrInUse]. So is
// posting requests that complete there other than through its dispatchers, requesters
// and receivers.
//
// Methods may be called from any number of goroutines. They do not allocate, except those
// that make something, and a wait with a new [Waiter] while others poll.
type Dispatcher struct {
	rt     *router
	engine Handler
	index  uint64
	depth  int

	closing sync.Mutex
	closed  atomic.Bool
}

// MaxTag is the largest tag of [Dispatcher.ID].
const MaxTag = 1<<48 - 1

// Dispatch delivers the completions that carry the handler's tags to it. The queue grows, if
// need be, so that it has room for depth of them beside those of the others. The handler
// must not have more under way.
//
// Requests that were posted in another way should have completed before: their completions
// are dropped. Numbers below 1<<48 are never taken for those of a handler.
func (c *CQ) Dispatch(e Handler, depth int) (*Dispatcher, error) {
	const op = "dispatch completions of"
	if err := c.life.Open(op); err != nil {
		return nil, err
	}
	switch {
	case e == nil:
		return nil, opError(op, c.life.Label, ErrAttributes, "no handler")
	case depth <= 0:
		return nil, opError(op, c.life.Label, ErrAttributes, "depth ", depth)
	case c.solicited:
		return nil, opError(op, c.life.Label, ErrAttributes, "its completions do not wake: it is SolicitedOnly")
	}
	if err := c.life.AddChild("dispatcher"); err != nil {
		return nil, err
	}
	d := &Dispatcher{engine: e, depth: depth}
	if err := c.routeTo(depth, func(rt *router, at uint64) routed {
		d.rt, d.index = rt, at
		return d
	}); err != nil {
		c.life.RemoveChild("dispatcher")
		return nil, err
	}
	return d, nil
}

// CQ is the queue that is dispatched.
func (d *Dispatcher) CQ() *CQ { return d.rt.cq }

// ID is the work request's number for a tag, of which the lower 48 bits count.
func (d *Dispatcher) ID(tag uint64) uint64 { return d.index<<48 | tag&MaxTag }

// NewBatch is [QP.NewBatch] for requests with numbers from [Dispatcher.ID]. The
// sends of the queue pair have to complete in the dispatcher's queue.
func (d *Dispatcher) NewBatch(q *QP, n int) (*Batch, error) {
	if err := d.serves(q, q.sendCQ); err != nil {
		return nil, err
	}
	b, err := q.NewBatch(n)
	if err == nil {
		b.by = d
	}
	return b, err
}

// NewRecvBatch is [QP.NewRecvBatch] likewise.
func (d *Dispatcher) NewRecvBatch(q *QP, n int) (*RecvBatch, error) {
	if err := d.serves(q, q.recvCQ); err != nil {
		return nil, err
	}
	b, err := q.NewRecvBatch(n)
	if err == nil {
		b.by = d
	}
	return b, err
}

func (d *Dispatcher) serves(q *QP, cq *CQ) error {
	const op = "make dispatched batch for"
	if err := d.open(op); err != nil {
		return err
	}
	if cq != d.rt.cq {
		return opError(op, q.life.Label, ErrAttributes, "it completes elsewhere than in ", d.rt.cq.life.Label)
	}
	return nil
}

// open is small enough to be inlined as long as refused is not.
func (d *Dispatcher) open(op string) error {
	if d.closed.Load() {
		return d.refused(op)
	}
	return nil
}

//go:noinline
func (d *Dispatcher) refused(op string) error {
	return opError(op, "dispatcher of "+d.rt.cq.life.Label, ErrClosed)
}

// mayPost refuses a post to a shared queue unless d is a dispatcher of it that is open.
func (d *Dispatcher) mayPost(op string, cq *CQ) error {
	if d == nil {
		return cq.unrouted(op)
	}
	return d.open(op)
}

// Polled is what [Dispatcher.PostPoll] has found. The zero value means nothing.
type Polled struct {
	rt  *router
	n   int
	err error // of the queue
}

// Dispatch delivers the completions, the handler's and others', and returns how many there
// are. It must be called once, and soon: until then no other goroutine can poll.
func (f Polled) Dispatch() int {
	if f.rt == nil {
		return 0
	}
	if f.err != nil {
		defer f.rt.broken(f.err)
	}
	f.rt.handOut(f.n)
	return f.n
}

// dispatchOwn is [driver.DispatchOwn].
func (f Polled) dispatchOwn(d *Dispatcher, completed func(tag uint64, wc *WC)) bool {
	if f.n == 0 || f.err != nil {
		return false
	}
	wcs := f.rt.wcs[:f.n]
	for i := range wcs {
		if wc := &wcs[i].wc; wc.ID>>48 != d.index || wc.Status != uint32(WCSuccess) {
			return false
		}
	}
	defer f.rt.pollLock.Release()
	for i := range wcs {
		completed(wcs[i].wc.ID&MaxTag, &wcs[i])
	}
	return true
}

// PostPoll posts a batch of the dispatcher's and, unless another goroutine is polling,
// polls in the same crossing into C, up to spins times again while there are no
// completions. A program that posts under a lock which Completed also takes must release it
// before [Polled.Dispatch]. posted and err are [Batch.Post]'s, or say why the queue can no
// longer be polled ([ErrOverrun], with all posted). Call [Polled.Dispatch] on found in any case. A
// batch of another dispatcher is refused with [ErrAttributes] and stays as it is.
func (d *Dispatcher) PostPoll(b *Batch, spins int) (posted int, found Polled, err error) {
	if b == nil || b.by != d { // another's batch stays as it is
		return 0, Polled{}, errors.Join(d.open("post by"), opError("post", "batch", ErrAttributes, "it is not the dispatcher's"))
	}
	if err := d.open("post by"); err != nil {
		return 0, Polled{}, b.ended(err)
	}
	if rt := d.rt; rt.try() {
		found.rt = rt
		n := b.n
		posted, found.n, err = b.postPoll(rt, rt.cq, rt.wcs[:], spinsOf(spins), nil)
		if err != nil && posted == n && n > 0 {
			found.err = err
		}
		return posted, found, err
	}
	posted, err = b.Post()
	return posted, Polled{}, err
}

// Poll looks for completions, up to spins times again while there are none, and delivers
// them. It returns how many there were, for all that share the queue; 0 if another
// goroutine is polling.
func (d *Dispatcher) Poll(spins int) (int, error) {
	if err := d.open("poll"); err != nil {
		return 0, err
	}
	rt := d.rt
	if !rt.try() {
		return 0, nil
	}
	n, err := rt.cq.poll(rt, rt.wcs[:], spinsOf(spins))
	if err != nil {
		n = 0
	}
	rt.handOut(n)
	switch {
	case errors.Is(err, errUnrouted):
		return 0, d.open("poll") // closed meanwhile
	case err != nil:
		rt.broken(err)
	}
	return n, err
}

// Wait waits until the waiter has been woken, or returns why it gives up: the context's
// error, as it is, or that the queue can no longer be polled. Meanwhile waiting goroutines
// poll for all, in turn. If the waiter has been woken already, Wait returns at once.
func (d *Dispatcher) Wait(ctx context.Context, w *Waiter) error {
	rt := d.rt
	if w == nil {
		return errors.Join(d.open("wait for"), opError("wait for", rt.cq.life.Label, ErrAttributes, "no waiter"))
	}
	for again := false; !w.woken.Load(); again = true {
		if err := d.open("wait for"); err != nil {
			return err
		}
		if again { // the goroutines that were woken meanwhile go first, instead of behind this one's spinning
			runtime.Gosched()
		}
		var err error
		if rt.pollLock.Try() || w.listen(ctx, rt) {
			if w.woken.Load() || d.closed.Load() {
				rt.pollLock.Release()
				continue
			}
			err = rt.look(ctx)
		}
		switch {
		case w.woken.Load():
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			rt.broken(err)
			return err
		}
	}
	return nil
}

// Wake is [Waiter.Wake] for all callers but the handler's Completed.
func (d *Dispatcher) Wake(w *Waiter) {
	if w == nil {
		return
	}
	w.Wake()
	if w.count.Load() == 0 { // it may be parked itself, with the poll lock
		d.rt.cq.wake()
	}
}

// Close ends the dispatching. Before that, the handler must have woken its waiters, and
// closed its queue pairs, reset them, or seen all their requests complete. Completions
// that are still in the queue are delivered to it until Close returns; later ones would
// go to the next handler. Closing twice is not an error.
func (d *Dispatcher) Close() error {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed.Load() {
		return nil
	}
	finish(d.close)
	return nil
}

func (d *Dispatcher) close() {
	rt := d.rt
	d.drain()
	rt.cq.unroute(d.index, d.depth, false)
	rt.cq.life.RemoveChild("dispatcher")
}

// drain delivers what is in the queue, and ends the dispatching with the poll lock.
func (d *Dispatcher) drain() {
	d.rt.hold()
	defer d.rt.pollLock.Release()
	d.rt.pollAll()
	d.closed.Store(true)
}

// deliver is [routed]'s.
func (d *Dispatcher) deliver(id uint64, wc *WC) bool {
	if wc.wc.Status != uint32(WCSuccess) {
		d.rt.cq.failedOne(wc) // its queue pair learns of it
	}
	d.engine.Completed(id&MaxTag, wc)
	return true
}

// takeDown is [routed]'s.
func (d *Dispatcher) takeDown(cause error) {
	if !d.closed.Load() {
		d.engine.Lost(cause)
	}
}

// Waiter is what a goroutine waits for with [Dispatcher.Wait]. The zero value is
// ready. One goroutine at a time waits for it.
type Waiter struct {
	woken atomic.Bool
	listeners
}

// Reset makes a waiter ready for another wait. The goroutine that waits calls it before
// any other goroutine knows that there is something to wait for.
func (w *Waiter) Reset() {
	w.woken.Store(false)
	if w.token == nil { // no goroutine has had to wait yet
		return
	}
	select {
	case <-w.token:
	default:
	}
}

// Woken reports whether the wait is over.
func (w *Waiter) Woken() bool { return w.woken.Load() }

// Wake ends the wait, now or when it begins. It is for [Handler.Completed], and never
// blocks. Elsewhere use [Dispatcher.Wake].
func (w *Waiter) Wake() {
	if w.woken.Load() { // a list of completions wakes it for each of them
		return
	}
	w.woken.Store(true)
	w.wake()
}

// listen waits for the poll lock, to be woken or for the context's end, and reports
// whether it has the lock.
func (w *Waiter) listen(ctx context.Context, rt *router) bool {
	if w.token == nil {
		w.token = make(chan struct{}, 1)
	}
	return w.listeners.listen(ctx, rt, &w.woken, true)
}
