package verbs

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cgo"
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
		return 0, opError("wait for", c.life.label, ErrAttributes, "made with PollOnly")
	}
	if len(wcs) == 0 {
		return 0, nil
	}
	select {
	case c.wait.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, opError("wait for", c.life.label, ctx.Err())
	}
	defer func() { <-c.wait.turn }()

	spin := c.spin
	for {
		if err := ctx.Err(); err != nil {
			return 0, opError("wait for", c.life.label, err)
		}
		n, err := c.poll(wcs, spin)
		if n > 0 || err != nil {
			return n, err
		}
		// An event is raised for the first completion after arming. One that
		// came before it, after the poll above, is found by polling again.
		n, err = c.armAndPoll(wcs)
		if n > 0 || err != nil {
			return n, err
		}
		if err := c.wait.park(ctx); err != nil {
			return 0, opError("wait for", c.life.label, err)
		}
		spin = 0
	}
}

func (c *CQ) armAndPoll(wcs []WC) (int, error) {
	if !c.life.enter() {
		return 0, opError("wait for", c.life.label, ErrClosed)
	}
	n, err := cgo.ArmPollCQ(c.cq, c.solicited, rawWCs(wcs))
	c.life.exit()
	if err != nil {
		return 0, c.pollError(err)
	}
	return n, nil
}

// wake makes a parked Wait look again.
func (c *CQ) wake() { c.wait.interrupt() }

// waiter parks goroutines on a completion channel in the netpoller.
type waiter struct {
	cq   *CQ
	file *os.File
	conn syscall.RawConn
	turn chan struct{} // holds a token while somebody waits
	take func(uintptr) bool
	err  error // of the last take; the token's holder owns it

	mu      sync.Mutex
	watched <-chan struct{} // done channel of the context that stop belongs to
	stop    func() bool
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
	w.turn = make(chan struct{}, 1)
	w.take = w.takeEvent // bound once: a method value allocates
	return nil
}

// takeEvent is called by the netpoller, once before it parks and again after
// each wake-up: with an edge-triggered poller nothing may be left unread
// before parking, and nothing is.
func (w *waiter) takeEvent(uintptr) bool {
	if !w.cq.life.enter() {
		w.err = ErrClosed
		return true
	}
	ok, err := cgo.TakeCQEvent(w.cq.channel)
	w.cq.life.exit()
	w.err = err
	return ok || err != nil
}

// park returns nil after an event, or after a wake-up without one.
func (w *waiter) park(ctx context.Context) error {
	w.watch(ctx)
	w.err = nil
	err := w.conn.Read(w.take)
	switch {
	case err == nil:
		return w.err
	case errors.Is(err, os.ErrDeadlineExceeded):
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// Somebody's interrupt: clear it and let the caller look.
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.file.SetReadDeadline(time.Time{})
	default:
		return ErrClosed
	}
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
	w.file.SetReadDeadline(time.Time{})
	if done != nil {
		w.stop = context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.watched == done {
				w.file.SetReadDeadline(longAgo)
			}
		})
	}
}

// interrupt ends a read under way.
func (w *waiter) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
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
