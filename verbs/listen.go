package verbs

import (
	"context"
	"sync/atomic"
)

// listeners are the goroutines that wait for one thing while another polls. Of all
// goroutines that wait for anything of a queue one has the poll lock; the others listen
// until they get it or what they wait for has come.
type listeners struct {
	count atomic.Int32
	token chan struct{} // one, made before the first listener; has a token when a listener is to look
}

// wake wakes one listener, if there is any. It never blocks.
func (l *listeners) wake() {
	if l.count.Load() > 0 {
		select {
		case l.token <- struct{}{}:
		default:
		}
	}
}

// listen waits for the poll lock, until state has that value, or for the end of the
// context, and reports whether the caller has the poll lock. Code that sets the state
// calls wake afterwards. An extra token only makes the caller look again.
func (l *listeners) listen(ctx context.Context, rt *router, state *atomic.Bool, value bool) bool {
	l.count.Add(1)
	turn := state.Load() != value && rt.pollLock.Take(l.token, ctx.Done())
	if l.count.Add(-1) > 0 && state.Load() == value {
		l.wake() // the next one
	}
	return turn
}

// ending is the end of what is under way.
type ending struct {
	flying atomic.Bool
	listeners
}

func (e *ending) end() {
	e.flying.Store(false)
	e.wake()
}

func (e *ending) listen(ctx context.Context, rt *router) bool {
	return e.listeners.listen(ctx, rt, &e.flying, false)
}

// look polls unless the end came meanwhile, and releases the poll lock, which the
// caller holds.
func (e *ending) look(ctx context.Context, rt *router) error {
	if !e.flying.Load() {
		rt.pollLock.Release()
		return nil
	}
	return rt.look(ctx)
}
