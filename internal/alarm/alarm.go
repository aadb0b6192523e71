// Package alarm calls a state machine when it wants to be looked at.
package alarm

import (
	"sync"
	"time"
)

// Never is when nothing is to be done.
const Never = time.Duration(1 << 62)

// Alarm calls a function at a time. A later time than the one that is set is ignored:
// the machine then finds nothing to do, and sets it again. Methods may be called with
// any lock held that the function takes; but for Stop, which waits for the function.
type Alarm struct {
	f       func()
	least   time.Duration
	mu      sync.Mutex
	timer   *time.Timer
	at      time.Duration
	stopped bool
	calls   sync.WaitGroup
}

// Init says what is called, and how long it takes at least until then.
func (a *Alarm) Init(f func(), least time.Duration) { a.f, a.least, a.at = f, least, Never }

// Set has the function called at a time, or earlier. It allocates once.
func (a *Alarm) Set(at, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at >= a.at || a.stopped {
		return
	}
	a.at = at
	d := max(at-now, a.least)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
}

func (a *Alarm) ring() {
	a.mu.Lock()
	if a.stopped {
		a.mu.Unlock()
		return
	}
	a.at = Never
	a.calls.Add(1) // before Stop waits: it has the lock first
	a.mu.Unlock()
	defer a.calls.Done()
	a.f()
}

// Stop ends it: the function is not running any more when Stop returns, nor later.
func (a *Alarm) Stop() {
	a.mu.Lock()
	a.stopped = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	a.calls.Wait()
}
