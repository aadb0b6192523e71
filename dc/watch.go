package dc

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// watch is a goroutine that waits for a completion queue beside others that must see all
// that has come: what it has polled and not handled yet is in no queue. So it gives
// way to them first.
type watch struct {
	cqWaiter
	changed sync.Cond
	inside  bool // a goroutine waits, or holds completions
	others  int  // that want to see all
}

// init is given the owner's lock.
func (w *watch) init(cq *verbs.CQ, lock sync.Locker) { w.cq, w.changed.L = cq, lock }

// enter returns a context for wait, which is called without the lock. The owner's lock must
// be held, and is released while others look; one goroutine at a time is between enter and
// leave. Whatever has to wake the goroutine must be looked at in between.
func (w *watch) enter(ctx context.Context) (inner context.Context) {
	for w.others > 0 {
		w.changed.Wait()
	}
	w.inside = true
	return w.begin(ctx)
}

// leave is called with the lock held when all that was taken has been handled.
func (w *watch) leave() {
	w.inside = false
	w.changed.Broadcast()
}

// exclude returns when no goroutine is inside; none enters until admit. The owner's lock
// must be held.
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

// cqWaiter waits for a completion queue or for a wake-up of this program's own,
// whichever is first. Waiting again with the same context does not allocate.
type cqWaiter struct {
	cq *verbs.CQ

	mu     sync.Mutex
	parent <-chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
}

// begin returns a context for wait. It must come before the look at what wake
// announces.
func (p *cqWaiter) begin(ctx context.Context) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.parent != ctx.Done() || p.ctx.Err() != nil {
		if p.cancel != nil {
			p.cancel()
		}
		p.parent = ctx.Done()
		p.ctx, p.cancel = context.WithCancel(ctx)
	}
	return p.ctx
}

// wait may return 0 and no error: then look again. An error is the queue's, or the
// caller's context's.
func (p *cqWaiter) wait(ctx, inner context.Context, wcs []verbs.WC) (int, error) {
	n, err := p.cq.Wait(inner, wcs)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return 0, nil
	}
	return n, err
}

func (p *cqWaiter) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
	}
}
