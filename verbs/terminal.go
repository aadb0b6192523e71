package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// terminalState is when and why a queue pair ended.
type terminalState struct {
	dead  atomic.Bool
	mu    sync.Mutex
	done  chan struct{} // made by the first Done
	cause error
	life  uint32            // grows with each revival
	then  func(cause error) // called once, by a goroutine of its own
	stays bool              // through a reset; guarded by QP.modify
}

// Done is closed when the queue pair has ended: [QP.Err] says why. A queue pair
// that goes through [StateReset] begins anew, with another channel.
//
// A queue pair ends by whatever comes first: a failed request of an RC or UC queue pair,
// when its completion is polled; an event of the device; the end of a connection of
// package rdmacm; [QP.ToError] and [QP.Close]. A peer that dies while nothing
// is under way shows with the next request.
func (q *QP) Done() <-chan struct{} {
	d := &q.terminal
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done == nil {
		d.done = make(chan struct{})
		if d.cause != nil {
			close(d.done)
		}
	}
	return d.done
}

// Err returns nil while the queue pair works, and then why it ended: the first failure
// that became known, with the peer. Later requests complete as [WCFlushed], which says
// less.
func (q *QP) Err() error {
	if !q.terminal.dead.Load() {
		return nil
	}
	q.terminal.mu.Lock()
	defer q.terminal.mu.Unlock()
	return q.terminal.cause
}

// fail is [driver.Fail].
func (q *QP) fail(cause error) error {
	if cause != nil {
		q.terminate(opError("use", q.named(), cause))
	}
	return q.ToError()
}

// terminate ends the queue pair for its watchers; the first cause stays.
func (q *QP) terminate(cause error) (life uint32) {
	q.terminal.mu.Lock()
	defer q.terminal.mu.Unlock()
	return q.terminateLocked(cause)
}

// terminateIn is terminate, unless the queue pair was revived since that life.
func (q *QP) terminateIn(life uint32, cause error) {
	q.terminal.mu.Lock()
	defer q.terminal.mu.Unlock()
	if q.terminal.life == life {
		q.terminateLocked(cause)
	}
}

func (q *QP) terminateLocked(cause error) (life uint32) {
	d := &q.terminal
	if d.cause != nil {
		return d.life
	}
	d.cause = cause
	d.dead.Store(true)
	if d.done != nil {
		close(d.done)
	}
	if r := q.requester.Load(); r != nil {
		go r.flushBeside(d.life, cause)
	}
	if r := q.receiver.Load(); r != nil {
		go r.notify()
	}
	if d.then != nil {
		go d.then(cause)
	}
	return d.life
}

// ended returns Err and the life that ended.
func (q *QP) ended() (life uint32, cause error) {
	if !q.terminal.dead.Load() {
		return 0, nil
	}
	q.terminal.mu.Lock()
	defer q.terminal.mu.Unlock()
	return q.terminal.life, q.terminal.cause
}

// lived returns the current life, and the cause if it has ended.
func (q *QP) lived() (life uint32, cause error) {
	q.terminal.mu.Lock()
	defer q.terminal.mu.Unlock()
	return q.terminal.life, q.terminal.cause
}

// stands returns why the queue pair takes no requests, if so. The device may know first.
func (q *QP) stands(op string) error {
	if cause := q.Err(); cause != nil {
		return opError(op, q.named(), class(ErrState, cause))
	}
	return q.life.With(op, func() error {
		now, err := q.queryState()
		if err != nil {
			return opError(op, q.life.Label, err)
		}
		if now == StateReset || now == StateError {
			return opError(op, q.life.Label, ErrState, "it is in ", now)
		}
		return nil
	})
}

// explain returns the cause of a flush in generation life. The flush may be polled
// before [QP.ToError] or an event of the device has set the cause, so explain waits
// up to 100 ms for it.
func (q *QP) explain(life uint32) error {
	const timeout = 100 * time.Millisecond
	if r := q.requester.Load(); r != nil && r.router != nil { // the cause may be a request that no goroutine polls for
		r.Poll()
	}
	select {
	case <-q.Done():
	case <-time.After(timeout):
		q.terminateIn(life, opError("use", q.named(), errSilentEnd))
	}
	if cause := q.Err(); cause != nil {
		return cause
	}
	return errRevived
}

// errRevived: the queue pair went through RESET.
var errRevived = errors.New("the queue pair was reset since")

// errSilentEnd: requests are flushed, and neither the program nor an event nor
// another request gave the cause.
var errSilentEnd = errors.New("the device flushes its requests and does not say why")

// stateIn changes the state of a queue pair that died in that life, unless it was
// revived since. It stays dead even in RESET, so that it never looks alive in between.
func (q *QP) stateIn(life uint32, s QPState) error {
	a := QPAttr{State: s}
	raw := a.raw()
	q.modify.Lock()
	defer q.modify.Unlock()
	if now, cause := q.ended(); cause == nil || now != life {
		return errRevived
	}
	q.terminal.stays = true
	defer func() { q.terminal.stays = false }()
	return q.modifyLocked(&raw, AttrState)
}

// revive begins the next life of a queue pair that went to [StateReset].
func (q *QP) revive() {
	d := &q.terminal
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life++
	if d.cause != nil && !d.stays {
		d.cause, d.done = nil, nil
		d.dead.Store(false)
	}
}

// entered follows a change of state by this program.
func (q *QP) entered(s QPState) {
	switch s {
	case StateReset:
		defer q.revive() // even if a function of the program panics in cut
		if r := q.receiver.Load(); r != nil {
			defer r.cut()
		}
		if r := q.requester.Load(); r != nil && r.router != nil {
			cause := q.Err()
			if cause == nil {
				cause = opError("use", q.named(), ErrState, "this program moved it to ", s)
			}
			r.cut(cause)
		}
	case StateError:
		q.terminate(opError("use", q.named(), ErrState, "this program moved it to ", s))
	}
}

// heldPosts are the requester, and the locks of receiver and keep-alive, that cannot post.
type heldPosts struct {
	requester *Requester
	others    [2]*sync.Mutex
}

// holdPosts keeps the queue pair's requester, receiver and keep-alive from posting until
// held is released: a reset would lose requests posted at the same time.
func (q *QP) holdPosts() (held heldPosts) {
	if r := q.requester.Load(); r != nil {
		held.requester = r
		r.hold()
	}
	if r := q.receiver.Load(); r != nil {
		held.others[0] = &r.posting
	}
	if k := q.keep; k != nil {
		held.others[1] = &k.mu
	}
	for _, m := range held.others {
		if m != nil {
			m.Lock()
		}
	}
	return held
}

func (h *heldPosts) release() {
	if h.requester != nil {
		h.requester.unhold()
	}
	for _, m := range h.others {
		if m != nil {
			m.Unlock()
		}
	}
}

// requested refuses what would go past the queue pair's requester.
func (q *QP) requested(op string) error {
	return opError(op, q.life.Label, ErrInUse, "a Requester has its sends")
}

// named is the queue pair with its peer, for errors.
func (q *QP) named() string {
	if p := q.peer.Load(); p != nil {
		return q.life.Label + " to " + *p
	}
	return q.life.Label
}

// failed ends the queue pairs of completions that failed.
func (c *CQ) failed(wcs []WC) {
	if c.router.Load() != nil { // deliver knows more
		return
	}
	for i := range wcs {
		c.failedOne(&wcs[i])
	}
}

// failedOne ends the queue pair of a completion if it failed. A flushed one says
// nothing about the cause.
func (c *CQ) failedOne(wc *WC) {
	switch wc.Status() {
	case WCSuccess, WCFlushed:
	default:
		if c.dev == nil { // see Wrap
			return
		}
		if q := c.dev.async.qpOf(wc.QPNum()); q != nil {
			q.requestFailed(wc)
		}
	}
}

// requestFailed is the end of a connected queue pair by one of its requests.
// Others live on, or come back by themselves.
func (q *QP) requestFailed(w *WC) {
	if q.typ == RC || q.typ == UC {
		q.terminate(opError("request on", q.named(), w.Err()))
	}
}

// anyFailed is on the path of each poll.
func anyFailed(wcs []WC) bool {
	var status uint32 // WCSuccess is 0
	for i := range wcs {
		status |= wcs[i].wc.Status
	}
	return status != 0
}

// qpOf finds a queue pair by its number.
func (r *asyncReader) qpOf(num uint32) *QP {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.qps {
		if q.num == num {
			return q
		}
	}
	return nil
}

// errDeviceFailed is the cause for all queues of a failed device. The kernel returns EIO
// from then on.
var errDeviceFailed = fmt.Errorf("the device failed: %w", syscall.EIO)

// diedAll ends all queue pairs of a device, and makes waits for completions fail: there
// are no more completions or events. A queue notices the end of its channel only while
// it waits.
func (r *asyncReader) diedAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.qps {
		q.terminate(opError("use", q.named(), cause))
	}
	for _, c := range r.cqs {
		c.dead.Store(true)
		c.wake()
	}
}
