// Package alarm calls a state machine when it wants to be looked at.
package alarm

import (
	"sync"
	"sync/atomic"
	"time"
)

// Never is when nothing is to be done.
const Never = time.Duration(1 << 62)

// Alarm calls a function at a time, from a goroutine of its own, with a stack that has
// grown to what the function takes, and stays so. Methods may be called with any lock
// held that the function takes, except Stop, which waits for the function.
type Alarm struct {
	f       func()
	least   time.Duration
	at      atomic.Int64 // changed with mu
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	end     chan struct{}
	calls   sync.WaitGroup
}

// Init sets the function, and the least time from Set until it is called.
func (a *Alarm) Init(f func(), least time.Duration) {
	a.f, a.least = f, least
	a.at.Store(int64(Never))
}

// Set schedules the call of the function at a time, or earlier: a later time than the one that is
// set is ignored. The machine then finds nothing to do, and sets it again. It allocates
// once.
//
// A call that finds an earlier time set needs no lock: if the alarm goes off meanwhile, its function has yet to
// run.
func (a *Alarm) Set(at, now time.Duration) {
	if int64(at) >= a.at.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if int64(at) >= a.at.Load() || a.stopped {
		return
	}
	a.at.Store(int64(at))
	d := max(at-now, a.least)
	if a.timer == nil {
		a.timer = time.NewTimer(d)
		a.end = make(chan struct{})
		a.calls.Add(1)
		go a.ring(a.timer)
	} else {
		a.timer.Reset(d)
	}
}

func (a *Alarm) ring(timer *time.Timer) {
	defer a.calls.Done()
	for {
		select {
		case <-timer.C:
		case <-a.end:
			return
		}
		a.mu.Lock()
		stopped := a.stopped
		a.at.Store(int64(Never))
		a.mu.Unlock()
		if stopped {
			return
		}
		a.f()
	}
}

// Stop ends the alarm: the function does not run any more when Stop returns, nor later.
func (a *Alarm) Stop() {
	a.mu.Lock()
	if a.timer != nil && !a.stopped {
		a.timer.Stop()
		close(a.end)
	}
	a.stopped = true
	a.mu.Unlock()
	a.calls.Wait()
}
