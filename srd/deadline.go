package srd

import (
	"context"
	"sync"
	"time"
)

// deadline is when calls of a kind end, including calls that already wait.
type deadline struct {
	mu    sync.Mutex
	at    time.Time // zero: never
	calls map[*call]bool
}

// call is a call that may wait.
type call struct {
	cancel context.CancelFunc
	timer  *time.Timer
}

// begin returns a context that ends with the deadline, and a function to call at the end of
// the call. After the deadline it returns [context.DeadlineExceeded].
func (d *deadline) begin() (context.Context, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.at.IsZero() && !time.Now().Before(d.at) {
		return nil, nil, context.DeadlineExceeded
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{cancel: cancel}
	c.arm(d.at)
	if d.calls == nil {
		d.calls = make(map[*call]bool)
	}
	d.calls[c] = true
	return ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.calls, c)
		c.arm(time.Time{})
		cancel()
	}, nil
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	for c := range d.calls {
		c.arm(at)
	}
}

func (c *call) arm(at time.Time) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if !at.IsZero() {
		c.timer = time.AfterFunc(time.Until(at), c.cancel)
	}
}
