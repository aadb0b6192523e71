package dc

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// watch is a goroutine that waits for a completion queue beside others that must see all
// that has come: what it has polled and not handled yet is in no queue. So it gives
// way to them first. All methods but wait need the owner's lock.
type watch struct {
	cq      *verbs.CQ
	changed sync.Cond
	inside  bool // a goroutine waits, or holds completions
	others  int  // that want to see all

	// Of the last wait. Waiting again with the same context does not allocate.
	parent <-chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
}

// init is given the owner's lock.
func (w *watch) init(cq *verbs.CQ, lock sync.Locker) { w.cq, w.changed.L = cq, lock }

// enter returns a context for wait. The lock is released while others look; one goroutine
// at a time is between enter and leave. Whatever has to wake the goroutine must be looked at
// in between.
func (w *watch) enter(ctx context.Context) (inner context.Context) {
	for w.others > 0 {
		w.changed.Wait()
	}
	w.inside = true
	if w.ctx == nil || w.parent != ctx.Done() || w.ctx.Err() != nil {
		w.wake()
		w.parent = ctx.Done()
		w.ctx, w.cancel = context.WithCancel(ctx)
	}
	return w.ctx
}

// wait waits for completions or for wake. It may return 0 and no error: then look again. An
// error is the queue's, or the caller's context's.
func (w *watch) wait(ctx, inner context.Context, wcs []verbs.WC) (int, error) {
	n, err := w.cq.Wait(inner, wcs)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return 0, nil
	}
	return n, err
}

// wake ends a wait, if there is one.
func (w *watch) wake() {
	if w.cancel != nil {
		w.cancel()
	}
}

// leave is called when all that was taken has been handled.
func (w *watch) leave() {
	w.inside = false
	w.changed.Broadcast()
}

// exclude returns when no goroutine is inside; none enters until admit.
func (w *watch) exclude() {
	w.others++
	for w.inside {
		w.wake()
		w.changed.Wait()
	}
}

func (w *watch) admit() {
	w.others--
	w.changed.Broadcast()
}
