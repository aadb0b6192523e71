package lockoffload

import (
	"encoding/binary"
	"sync/atomic"
)

// flight is a list under way. When it is over it may be used again, by whoever
// is the only one to await it.
type flight struct {
	list []op
	mem  []byte
	then ender   // told of the end before those who wait, if set
	next *flight // posted after this one
	err  error   // once over
	over event
}

// ender is told by whoever polls, and must not wait.
type ender interface{ ended(err error) }

func (f *flight) delivered(mark uint64) bool {
	for i := range f.list {
		if o := &f.list[i]; o.kind != opWrite && binary.NativeEndian.Uint64(f.mem[o.at+o.n-8:]) == mark {
			return false
		}
	}
	return true
}

// end is the last use of the flight by the line.
func (f *flight) end(err error) {
	f.err = err
	if f.then != nil {
		f.then.ended(err)
	}
	f.over.happen()
}

// event happens once, and any number of goroutines may wait for it. A channel
// is made only for those who must wait. The zero value has not happened.
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

// done is closed when it has happened.
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

// reset makes it happen again, when nobody waits for it.
func (e *event) reset() { e.ch.Store(nil) }
