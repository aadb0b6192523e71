package lockoffload

import "sync/atomic"

// event happens once, and any number of goroutines may wait for it. A channel
// is made only if one must wait. The zero value has not happened.
type event struct{ ch atomic.Pointer[chan struct{}] }

// past is the channel of what has happened already.
var past = make(chan struct{})

func init() { close(past) }

// happen must be called once. It does not touch the event afterwards.
func (e *event) happen() {
	if waited := e.ch.Swap(&past); waited != nil {
		close(*waited)
	}
}

func (e *event) happened() bool { return e.ch.Load() == &past }

// done returns a channel that is closed when the event has happened.
func (e *event) done() <-chan struct{} {
	c := e.ch.Load()
	if c == nil {
		made := make(chan struct{})
		if e.ch.CompareAndSwap(nil, &made) {
			return made
		}
		c = e.ch.Load()
	}
	return *c
}
