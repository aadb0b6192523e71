package srd

import (
	"context"
	"sync"
	"time"
)

// deadline is when calls of a kind end, including calls that already wait.
type deadline struct {
	mu    sync.Mutex
	calls context.Context // of the calls; nil before the first
	end   context.CancelFunc
	timer *time.Timer
}

// context returns a context for a call, which is cancelled at the deadline.
func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls == nil {
		d.calls, d.end = context.WithCancel(context.Background())
	}
	return d.calls
}

// set sets the deadline; the zero time is none.
func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fired := d.timer != nil && !d.timer.Stop()
	if d.calls == nil || fired || d.calls.Err() != nil {
		d.calls, d.end = context.WithCancel(context.Background())
	}
	d.timer = nil
	switch wait := time.Until(at); {
	case at.IsZero():
	case wait <= 0:
		d.end()
	default:
		d.timer = time.AfterFunc(wait, d.end)
	}
}
