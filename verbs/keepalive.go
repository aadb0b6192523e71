package verbs

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cgo"
)

// DefaultKeepAlive is the keep-alive of links and streams.
const DefaultKeepAlive = 30 * time.Second

// keepAliveID is the number of the requests of keep-alives, "keepaliv".
const keepAliveID = 0x6b656570616c6976

// keepAliveLook is how long after a request of a keep-alive its completion is looked for.
const keepAliveLook = time.Second

var errKeepAlive = errors.New("the peer's device does not acknowledge the keep-alive: its host is down or cannot be reached")

// keepAlive posts empty WRITEs to a queue pair. If the peer has gone, the transport's
// retries then end the queue pair. At most one is under way. Its completion is taken out
// of what the program polls ([CQ.sift]); if the program does not poll, the keep-alive
// does ([CQ.look]).
type keepAlive struct {
	every  time.Duration
	flying atomic.Bool // a request is under way, or its completion is still in the queue

	mu     sync.Mutex // no post while the queue pair is reset
	chain  *cgo.SendChain
	timer  *time.Timer // nil: not started, or ended
	posted bool        // a request, and its completion has not been noticed
	failed bool        // the device had the queue pair in ERROR at the last tick
}

// prepareKeepAlive makes room for the requests of a keep-alive in the completion queue. It
// is left out where the queue cannot be made longer or has completions of another kind.
func (q *QP) prepareKeepAlive(every time.Duration) error {
	if every <= 0 || q.typ != RC {
		return nil
	}
	if q.sendCQ.fields != 0 || !q.sendCQ.keep() {
		return nil
	}
	chain, err := cgo.NewSendChain(1, 1, 0)
	if err != nil {
		q.sendCQ.unkeep()
		return opError("make keep-alive of", q.life.Label, err)
	}
	w := &chain.WRs[0]
	w.ID, w.Opcode, w.Flags = keepAliveID, opWrite, uint32(Signaled)
	w.SetRDMA(0, 0)
	q.keep = &keepAlive{every: every, chain: chain}
	q.cap.MaxSendWR = min(q.cap.MaxSendWR+1, uint32(max(q.pd.dev.attr.MaxQPWR, 1)))
	return nil
}

// freeKeepAlive is called when the queue pair is gone, or was not made.
func (q *QP) freeKeepAlive() {
	k := q.keep
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stop()
	k.chain.Free()
	k.chain = nil
	q.sendCQ.unkeep()
}

// keepAlive starts the keep-alive of a queue pair that is connected.
func (q *QP) keepAlive() {
	k := q.keep
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.chain == nil {
		return
	}
	k.stop() // of an earlier connection
	k.timer = time.AfterFunc(k.every, q.keepAliveTick)
}

// stop ends the keep-alive. mu must be held.
func (k *keepAlive) stop() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
	k.posted, k.failed = false, false
	k.flying.Store(false)
}

// keepAliveTick is called when the timer has run out. What it finds is of the life that the
// queue pair had at its beginning; the program may connect it anew at any time.
func (q *QP) keepAliveTick() {
	k := q.keep
	k.mu.Lock()
	timer, look := k.timer, k.flying.Load() || k.failed
	k.mu.Unlock()
	life, cause := q.lived()
	if look {
		q.sendCQ.look()
	}
	ended, failed := cause != nil, false
	if !ended {
		// The completion of the failure may not have been polled yet, or been flushed.
		switch now, err := q.stateNow(); {
		case err != nil: // which may have been of this call alone
			ended = errors.Is(err, ErrClosed)
		case now == StateError:
			failed = true
		case now == StateReset:
			ended = true
		}
	}
	if q.keepAliveGoesOn(timer, ended, failed) {
		return
	}
	if failed {
		q.terminateIn(life, opError("use", q.named(), class(ErrUnreachable, errKeepAlive)))
	}
}

// keepAliveGoesOn sets the timer for the next tick, and reports false if there is none: the
// queue pair has ended, or failed.
func (q *QP) keepAliveGoesOn(timer *time.Timer, ended, failed bool) bool {
	k := q.keep
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.timer == nil || k.timer != timer: // ended meanwhile, or begun anew
		return true
	case failed && !k.failed: // the program has time to poll a completion that says why
		k.failed = true
		timer.Reset(min(k.every, keepAliveLook))
	case ended || failed:
		k.stop()
		return false
	case k.flying.Load():
		timer.Reset(keepAliveLook)
	case k.posted && k.every > keepAliveLook: // it has completed
		k.posted = false
		timer.Reset(k.every - keepAliveLook)
	default:
		q.postKeepAlive()
	}
	return true
}

// stateNow returns the state that the device has the queue pair in.
func (q *QP) stateNow() (now QPState, err error) {
	err = q.life.With("query", func() error {
		now, err = q.queryState()
		return err
	})
	return now, err
}

// postKeepAlive posts a request, unless the queue is full: then others are under way. The
// caller holds the lock of the keep-alive.
func (q *QP) postKeepAlive() {
	k := q.keep
	switch q.State() {
	case StateRTS:
	case StateSQD:
		k.timer.Reset(k.every)
		return
	default:
		k.stop()
		return
	}
	if !q.life.Enter() {
		k.stop()
		return
	}
	defer q.life.Exit()
	k.flying.Store(true)
	if _, err := cgo.PostSend(q.qp, q.path, k.chain, 1); err != nil {
		k.flying.Store(false)
		k.timer.Reset(k.every)
		return
	}
	k.posted = true
	k.timer.Reset(min(k.every, keepAliveLook))
}

// keepAliveDone takes the completion of a keep-alive's request.
func (q *QP) keepAliveDone(w *WC) {
	q.keep.flying.Store(false)
	switch w.Status() {
	case WCSuccess, WCFlushed:
	default:
		q.terminate(opError("use", q.named(), class(ErrUnreachable, class(errKeepAlive, w.Status()))))
	}
}

// keep makes room for one more keep-alive.
func (c *CQ) keep() bool {
	c.routing.Lock()
	defer c.routing.Unlock()
	if more := max(c.keepRoom, 1); c.keptNow == c.keepRoom {
		if err := c.grow(c.Depth() + more); err != nil {
			return false
		}
		c.keepRoom += more
	}
	c.keptNow++
	c.kept.Store(true)
	return true
}

func (c *CQ) unkeep() {
	c.routing.Lock()
	defer c.routing.Unlock()
	c.keptNow--
}

// stash has completions of the program's that a keep-alive has polled.
type stash struct {
	mu   sync.Mutex
	all  [16]WC
	left []WC // of all
}

// look polls for the completions of keep-alives in a queue that nothing else polls. The
// program's own are kept for its next call, in their order. A queue that a router polls is
// left to that, and one in which a call waits to that call, which looks too: no event may
// have reported the completion.
func (c *CQ) look() {
	if rt := c.router.Load(); rt != nil {
		if rt.try() {
			_ = rt.pollOnceLocked() // a wait gets the error
		}
		return
	}
	c.routing.Lock()
	defer c.routing.Unlock()
	if c.routed() || c.stash.Load() != nil {
		return
	}
	if c.wait.file != nil { // after routing, which routeTo holds while it waits for the waiter to leave
		select {
		case c.wait.waiter <- struct{}{}:
			defer func() { <-c.wait.waiter }()
		default:
			c.wake()
			return
		}
	}
	s := &stash{}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.stash.Store(s)
	c.waitIdle()
	if c.life.Enter() {
		n, err := cgo.PollCQ(c.cq, c.path, rawWCs(s.all[:]), 0)
		c.life.Exit()
		if err != nil {
			n = 0 // the next poll gets it too
		}
		s.left = s.all[:c.sift(s.all[:n])]
		if anyFailed(s.left) {
			c.failed(s.left)
		}
	}
	if len(s.left) == 0 {
		c.stash.Store(nil)
	}
}

// unfinished implements driver.Unfinished. The sends of a queue that is routed are all posted by
// what takes their completions.
func (c *CQ) unfinished() bool {
	if c.routed() {
		return false
	}
	if c.look(); c.stash.Load() != nil {
		c.kept.Store(true) // polls look at the stash
		return true
	}
	return cgo.OutstandingIn(c.path) > 0
}

// unstash takes completions that a keep-alive has polled.
func (c *CQ) unstash(wcs []WC) int {
	s := c.stash.Load()
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := copy(wcs, s.left)
	if s.left = s.left[n:]; len(s.left) == 0 {
		c.stash.CompareAndSwap(s, nil)
	}
	return n
}

// sift takes the completions of keep-alives out of wcs, and returns how many are left.
func (c *CQ) sift(wcs []WC) int {
	n := 0
	for i := range wcs {
		if wcs[i].wc.ID == keepAliveID && c.dev != nil {
			if q := c.dev.async.qpOf(wcs[i].QPNum()); q != nil && q.keep != nil {
				q.keepAliveDone(&wcs[i])
				continue
			}
		}
		wcs[n] = wcs[i]
		n++
	}
	return n
}
