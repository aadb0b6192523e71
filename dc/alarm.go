package dc

import (
	"sync"
	"time"
)

// alarm calls a function when a state machine wants its tick. A later time than
// the one that is set is ignored: the tick then finds nothing to do and sets it
// again.
type alarm struct {
	f     func()
	timer *time.Timer
	at    time.Duration
	work  sync.WaitGroup
}

func (a *alarm) init(f func()) { a.f, a.at = f, never }

// set is called with the owner's lock held.
func (a *alarm) set(at, now time.Duration) {
	if at >= a.at {
		return
	}
	a.at = at
	d := max(at-now, time.Millisecond)
	if a.timer == nil {
		a.work.Add(1)
		a.timer = time.AfterFunc(d, func() {
			defer a.work.Done()
			a.f()
		})
		return
	}
	if !a.timer.Stop() {
		a.work.Add(1) // the last call has begun
	}
	a.timer.Reset(d)
}

// rung is called with the owner's lock held, when the function runs.
func (a *alarm) rung() { a.at = never }

// stop waits for a call under way. It is called without the owner's lock, which
// must have seen to it that set is not called any more.
func (a *alarm) stop() {
	if a.timer != nil && a.timer.Stop() {
		a.work.Done()
	}
	a.work.Wait()
}
