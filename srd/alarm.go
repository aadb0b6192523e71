package srd

import (
	"sync"
	"time"
)

// alarm calls a function when the engine wants to be asked. A later time than the one
// that is set is ignored: the engine then has nothing to do, and it is set again.
type alarm struct {
	f       func()
	mu      sync.Mutex
	timer   *time.Timer
	at      time.Duration
	stopped bool
}

const never = time.Duration(1 << 62)

func (a *alarm) init(f func()) { a.f, a.at = f, never }

func (a *alarm) set(at, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at >= a.at || a.stopped {
		return
	}
	a.at = at
	d := max(at-now, 20*time.Microsecond)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock() // stop waits for it
	a.at = never
	if !a.stopped {
		a.f()
	}
}

func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
