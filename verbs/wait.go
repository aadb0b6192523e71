package verbs

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/backoff"
)

// Wait polls the queue like [CQ.Poll] until there is a completion. It spins
// for a short time, then parks the goroutine, not a thread, until the device
// raises an event. It ends early with the context's error, with [ErrClosed]
// or with [ErrOverrun]. A second concurrent Wait waits for the first one to
// end.
//
// Repeated calls with one context do not allocate.
func (c *CQ) Wait(ctx context.Context, wcs []WC) (int, error) {
	if c.wait.file == nil {
		return 0, opError("wait for", c.life.Label, ErrAttributes, "made with PollOnly")
	}
	if len(wcs) == 0 {
		return 0, nil
	}
	if err := c.unrouted("wait for"); err != nil {
		return 0, err
	}
	select {
	case c.wait.waiter <- struct{}{}:
	case <-ctx.Done():
		return 0, opError("wait for", c.life.Label, ctx.Err())
	}
	defer func() { <-c.wait.waiter }()

	if err := ctx.Err(); err != nil {
		return 0, opError("wait for", c.life.Label, err)
	}
	n, err := c.pollAWhile(ctx, nil, wcs)
	for n == 0 && err == nil {
		if err = c.unrouted("wait for"); err != nil {
			return 0, err
		}
		n, err = c.wait.park(ctx, nil, wcs)
	}
	return n, err
}

// pollAWhile polls for PollFor before parking, and less if a goroutine wants the router's poll lock. It leaves
// a single poll to park, which polls in the same crossing into C in which it requests an event.
func (c *CQ) pollAWhile(ctx context.Context, by *router, wcs []WC) (int, error) {
	spins := c.yielding.spins(c.spin)
	if spins == 0 && c.pollFor <= 0 && c.wait.file != nil {
		if now := c.router.Load(); now != by {
			return 0, c.taken(by, now)
		}
		return 0, nil
	}
	if c.pollFor > 0 {
		return c.pollAndYield(ctx, by, wcs, spins)
	}
	n, err := c.poll(by, wcs, spins)
	c.yielding.polled(spins, n > 0)
	return n, err
}

// pollAndYield polls for PollFor. It spins in Go, not in C: the goroutines that the last completions woke have
// its P before each poll, and wait for no other one to be woken. Spins that yield the CPU remain.
func (c *CQ) pollAndYield(ctx context.Context, by *router, wcs []WC, spins uint32) (n int, err error) {
	if spins&cgo.Yield == 0 {
		spins = 0
	}
	for begin := time.Now(); n == 0 && err == nil && time.Since(begin) < c.pollFor; spins = 0 {
		runtime.Gosched()
		if by != nil && by.wanted.Load() > 0 || ctx.Err() != nil {
			break
		}
		n, err = c.poll(by, wcs, spins)
		c.yielding.polled(spins, n > 0)
	}
	return n, err
}

// evict ends a Wait that began before the completions were requesters'.
func (c *CQ) evict() {
	if c.wait.file == nil {
		return
	}
	for pause := backoff.New(10*time.Microsecond, time.Millisecond); ; pause.Sleep() {
		select {
		case c.wait.waiter <- struct{}{}:
			<-c.wait.waiter
			return
		default:
			c.wake()
		}
	}
}

// wake makes a parked Wait look again.
func (c *CQ) wake() { c.wait.interrupt() }

// waiter parks goroutines on a completion channel in the netpoller.
type waiter struct {
	cq     *CQ
	file   *os.File
	conn   syscall.RawConn
	waiter chan struct{} // holds a token while a goroutine waits

	// For step, and owned by the goroutine that put the token there.
	step  func(uintptr) bool
	armed bool // an event was requested and not yet taken
	wcs   []WC
	n     int
	err   error

	mu      sync.Mutex
	watched <-chan struct{} // done channel of the context that interrupts reads
	stop    func() bool     // ends the registration with it, if that is how
	changed chan struct{}   // has a token when a follower is to look at watched; nil: there is none
	poked   bool            // an interrupt that was not seen yet
}

// longAgo as a deadline ends a read at once.
var longAgo = time.Unix(1, 0)

func (w *waiter) init(c *CQ, file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return err
	}
	w.cq, w.file, w.conn = c, file, conn
	w.waiter = make(chan struct{}, 1)
	w.step = w.waitStep // bound once: a method value allocates
	return nil
}

// waitStep is called by the netpoller, once before it parks the goroutine and
// again after each wake-up; false means to park. The poller is edge-triggered
// and forgets older edges before the first call: what is requested or found
// missing inside a call cannot be missed by the parking that follows.
func (w *waiter) waitStep(uintptr) bool {
	if !w.cq.life.Enter() {
		w.err = ErrClosed
		return true
	}
	for {
		w.n, w.err = cgo.WaitStep(w.cq.channel, w.cq.cq, w.cq.path, &w.armed, w.cq.notify, rawWCs(w.wcs))
		if w.n == 0 || !w.cq.kept.Load() {
			break
		}
		if w.n = w.cq.sift(w.wcs[:w.n]); w.n > 0 || w.err != nil {
			break
		}
	}
	w.cq.life.Exit()
	if w.n == 0 && w.err == nil {
		switch {
		case w.cq.overrun.Load():
			w.err = ErrOverrun
		case w.cq.dead.Load():
			w.err = errDeviceFailed
		}
	}
	return w.n > 0 || w.err != nil
}

// park waits for completions for by, as poll does. It may return without any: then the caller
// parks again.
func (w *waiter) park(ctx context.Context, by *router, wcs []WC) (int, error) {
	if n := w.cq.unstash(wcs); n > 0 {
		return n, nil
	}
	w.watch(ctx)
	w.wcs, w.n, w.err = wcs, 0, nil
	err := w.conn.Read(w.step)
	w.wcs = nil
	label := w.cq.life.Label
	switch {
	case err == nil && errors.Is(w.err, ErrClosed):
		return 0, opError("wait for", label, ErrClosed)
	case err == nil && w.err != nil:
		return 0, w.cq.pollError(w.err)
	case err == nil:
		if anyFailed(wcs[:w.n]) {
			w.cq.failed(wcs[:w.n])
		}
		return w.n, nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return 0, opError("wait for", label, ErrClosed)
	case ctx.Err() != nil:
		return 0, opError("wait for", label, ctx.Err())
	}
	// An interrupt: clear it and look. A context that ends now has its
	// own interrupt after that, or had it before and is seen here.
	w.mu.Lock()
	w.poked = false
	w.file.SetReadDeadline(time.Time{})
	w.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, opError("wait for", label, err)
	}
	return w.cq.poll(by, wcs, 0)
}

// watch makes ctx interrupt the reads from now on. The registration outlives
// the call, so that waiting again with the same context costs nothing.
func (w *waiter) watch(ctx context.Context) {
	done := ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	if done == w.watched {
		return
	}
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
	w.watched = done
	if !w.poked {
		w.file.SetReadDeadline(time.Time{})
	}
	switch {
	case done == nil:
	case w.changed != nil:
		select {
		case w.changed <- struct{}{}:
		default:
		}
	default:
		w.stop = context.AfterFunc(ctx, func() { w.ended(done) })
	}
}

// ended interrupts reads under a context that has ended.
func (w *waiter) ended(done <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched == done {
		w.file.SetReadDeadline(longAgo)
	}
}

// follow starts a goroutine that makes contexts interrupt reads, until unfollow is
// called. To register with each of them would allocate; to wait under one that was
// followed already costs nothing in either way.
func (w *waiter) follow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return
	}
	w.changed = make(chan struct{}, 1)
	go w.follower(w.changed)
}

func (w *waiter) follower(changed <-chan struct{}) {
	var done <-chan struct{}
	for {
		select {
		case <-done:
			w.ended(done)
			done = nil
		case _, ok := <-changed:
			if !ok {
				return
			}
			w.mu.Lock()
			done = w.watched
			w.mu.Unlock()
		}
	}
}

// unfollow ends follow. No read may be under way.
func (w *waiter) unfollow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed != nil {
		close(w.changed)
		w.changed, w.watched = nil, nil
	}
}

// interrupt ends a read under way.
func (w *waiter) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		w.poked = true
		w.file.SetReadDeadline(longAgo)
	}
}

// shut ends all reads, now and later.
func (w *waiter) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
		w.stop, w.watched = nil, nil
	}
	if w.file != nil {
		w.file.Close()
	}
}
