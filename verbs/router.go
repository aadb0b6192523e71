package verbs

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
	"github.com/goverbs/goverbs/internal/chanmutex"
)

// router hands the completions of a queue to the requesters and receivers that it
// serves. It has no goroutine of its own: one waiting goroutine polls for all, and
// passes the poll lock on when it has what it waits for.
//
// The number of a request names its owner:
//
//	bits 63-48  requester or receiver, by its place in the table, from 1 on
//	bits 47-24  its slot
//	bits 23-1   which use of the slot
//	bit  0      last request of a list: with it the slot is done
type router struct {
	cq    *CQ
	table atomic.Pointer[[]routed] // nil: free, or retired

	// Changed under the queue's lock.
	serves   int
	reserved int      // completions that may be in the queue at a time
	vacant   []uint64 // places

	wanted atomic.Int32 // goroutines that want the poll lock before those that wait for completions

	pollLock chanmutex.Mutex // the poll lock, guards the rest
	wcs      [64]WC
	// stray counts completions without an owner: of requests that were posted past the
	// requesters, or of a queue pair that was taken down.
	stray atomic.Uint64
}

// routed gets completions.
type routed interface {
	// deliver takes a completion, with the poll lock, and reports whether it is of
	// anything that is under way.
	deliver(id uint64, wc *WC) bool
	// takeDown ends what is under way, for that reason.
	takeDown(cause error)
}

const (
	maxRouted = 1 << 16
	maxSlots  = 1 << 24
	genMask   = 1<<23 - 1
)

// routeTo routes up to n completions at a time to the requester, receiver or dispatcher
// that its argument makes for a place in the table. The queue is made longer if all that
// may complete does not fit.
func (c *CQ) routeTo(n int, who func(rt *router, at uint64) routed) error {
	const op = "route completions of"
	c.routing.Lock()
	defer c.routing.Unlock()
	if c.shares > 0 {
		return opError(op, c.life.Label, ErrInUse, "what shared receive queues receive completes there too")
	}
	rt := c.router.Load()
	if rt == nil {
		if rt = c.idle; rt == nil {
			rt = &router{cq: c, pollLock: chanmutex.New()}
			rt.table.Store(&[]routed{nil}) // place 0 is for the numbers of other requests
		}
	}
	if need := rt.reserved + n + c.keepRoom; need > c.Depth() {
		if err := c.grow(need); err != nil {
			return opError(op, c.life.Label, ErrAttributes, "depth ", c.Depth(), ", and its queue pairs may complete ", need, " requests at a time: ", err)
		}
	}
	var at uint64
	table := slices.Clone(*rt.table.Load())
	if last := len(rt.vacant) - 1; last >= 0 {
		at, rt.vacant = rt.vacant[last], rt.vacant[:last]
	} else if at = uint64(len(table)); at < maxRouted {
		table = append(table, nil)
	} else {
		return opError(op, c.life.Label, ErrAttributes, maxRouted, " requesters and receivers")
	}
	table[at] = who(rt, at)
	rt.table.Store(&table)
	rt.reserved += n
	if rt.serves++; rt.serves == 1 {
		c.router.Store(rt)
		c.stash.Store(nil)
		c.waitIdle()
		c.evict()
		c.wait.follow()
	}
	return nil
}

func (c *CQ) grow(depth int) error {
	if depth > c.dev.attr.MaxCQE {
		return opError("resize", c.life.Label, ErrAttributes, "the device allows ", c.dev.attr.MaxCQE)
	}
	return c.resize(depth)
}

// unroute gives back what routeTo took. If a queue pair was cut off while the queue
// could not be polled, a completion may still come that names its place: that is not
// used again.
func (c *CQ) unroute(at uint64, n int, cutOff bool) {
	c.routing.Lock()
	defer c.routing.Unlock()
	rt := c.router.Load()
	table := slices.Clone(*rt.table.Load())
	table[at] = nil
	if !cutOff {
		rt.vacant = append(rt.vacant, at)
	}
	rt.table.Store(&table)
	rt.reserved -= n
	if rt.serves--; rt.serves == 0 {
		rt.hold()
		c.router.Store(nil) // with the poll lock: a later holder polls no more
		rt.pollLock.Release()
		c.idle = rt
		c.wait.unfollow()
	}
}

// share counts a queue pair with a shared receive queue: its receives cannot be routed.
func (c *CQ) share() error {
	c.routing.Lock()
	defer c.routing.Unlock()
	if err := c.unrouted("receive from a shared queue into"); err != nil {
		return err
	}
	c.shares++
	return nil
}

func (q *QP) unshare() {
	if q.srq != nil {
		q.recvCQ.routing.Lock()
		defer q.recvCQ.routing.Unlock()
		q.recvCQ.shares--
	}
}

// unrouted refuses calls that would take completions away from requesters and
// receivers.
func (c *CQ) unrouted(op string) error {
	if !c.routed() {
		return nil
	}
	return opError(op, c.life.Label, ErrInUse, otherTakes)
}

const otherTakes = "a Requester, Receiver or Dispatcher takes its completions"

// routed reports whether completions go to requesters, receivers or dispatchers.
func (c *CQ) routed() bool { return c.router.Load() != nil }

// errUnrouted: the queue is the program's again.
var errUnrouted = errors.New("nothing is routed")

// try acquires the poll lock if it is free, unless a high-priority waiter wants it. Used
// by busy pollers.
func (rt *router) try() bool { return rt.wanted.Load() == 0 && rt.pollLock.Try() }

// look waits for completions, hands them out and releases the poll lock, which the
// caller holds. It may return without any. Its error is the context's, or that of a
// broken queue.
func (rt *router) look(ctx context.Context) error {
	if rt.wanted.Load() > 0 {
		rt.pollLock.Release()
		time.Sleep(20 * time.Microsecond)
		return nil
	}
	c := rt.cq
	err := ctx.Err()
	n := 0
	if err == nil {
		n, err = c.pollAWhile(ctx, rt, rt.wcs[:])
	}
	switch {
	case n > 0 || err != nil:
	case c.wait.file == nil: // made with PollOnly
		runtime.Gosched()
	default:
		n, err = c.wait.park(ctx, rt, rt.wcs[:])
	}
	rt.handOut(n)
	return err
}

// handOut delivers the first n completions of wcs and releases the poll lock.
func (rt *router) handOut(n int) {
	defer rt.pollLock.Release()
	rt.deliver(rt.wcs[:n])
}

// pollOnce polls once and delivers. The poll lock must be held.
func (rt *router) pollOnce() (int, error) {
	n, err := rt.cq.poll(rt, rt.wcs[:], 0)
	if err != nil {
		return 0, err
	}
	rt.deliver(rt.wcs[:n])
	return n, nil
}

// pollOnceLocked polls once, with the poll lock, and releases it.
func (rt *router) pollOnceLocked() error {
	defer rt.pollLock.Release()
	_, err := rt.pollOnce()
	return err
}

// pollAll delivers all completions that were there when it began, and reports whether
// it could. Busy neighbours may add more all the time, so it takes as many as the queue
// has room for. The poll lock must be held.
func (rt *router) pollAll() bool {
	for left := rt.cq.Depth(); left > 0; {
		n, err := rt.pollOnce()
		if err != nil {
			return false
		}
		if n == 0 {
			break
		}
		left -= n
	}
	return true
}

// deliver hands completions to their slots, with the poll lock. If a function of the program panics
// or ends the goroutine, the completions behind are still delivered, before that goes on.
func (rt *router) deliver(wcs []WC) {
	if len(wcs) == 0 {
		return
	}
	table := *rt.table.Load()
	i := 0
	defer func() {
		if i < len(wcs) {
			rt.deliver(wcs[i+1:])
		}
	}()
	for ; i < len(wcs); i++ {
		id := wcs[i].wc.ID
		at := id >> 48
		if at >= uint64(len(table)) || table[at] == nil || !table[at].deliver(id, &wcs[i]) {
			rt.stray.Add(1)
			rt.cq.failedOne(&wcs[i])
		}
	}
}

// reclaim makes the device give back what is under way on a queue pair that died in
// that life, by moving it to the error state, or where that does not flush, by a reset,
// which ends its use of memory too. Where the queue cannot be polled it resets at once.
// In another life the queue pair is left alone ([errRevived]).
func (rt *router) reclaim(q *QP, life uint32, busy func() bool) error {
	const timeout = 2 * time.Second
	end := time.Now().Add(timeout)
	for pause := backoff.New(20*time.Microsecond, 5*time.Millisecond); busy() && time.Now().Before(end); pause.Sleep() {
		// rxe looks at what is posted to a queue pair in error only when it is
		// told of the error again.
		if err := q.stateIn(life, StateError); errors.Is(err, errRevived) {
			return err
		} else if err != nil {
			break
		}
		if rt.pollLock.Try() {
			if err := rt.pollOnceLocked(); err != nil {
				break
			}
		}
		rt.cq.wake()
	}
	if !busy() {
		return nil
	}
	return q.stateIn(life, StateReset)
}

// broken ends all requesters and receivers of a queue that can no longer be polled. The poll
// lock must not be held.
func (rt *router) broken(err error) {
	left := *rt.table.Load()
	finish(func() {
		for len(left) > 0 {
			r := left[0]
			left = left[1:]
			if r != nil {
				r.takeDown(err)
			}
		}
	})
}

// hold acquires the poll lock, before goroutines that wait for completions.
func (rt *router) hold() {
	rt.wanted.Add(1)
	defer rt.wanted.Add(-1)
	for pause := backoff.New(10*time.Microsecond, time.Millisecond); !rt.pollLock.Try(); pause.Sleep() {
		rt.cq.wake()
	}
}
