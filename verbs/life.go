package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// life is the lifetime of an object: who stands on it, who is inside a call
// on it right now, and whether it is closed.
//
// A parent refuses to close while it has children, so a child can always use
// its parents. Calls on the data path go through enter and exit, two atomic
// additions, so that close never destroys an object under a call.
type life struct {
	label   string
	parents []*life

	mu       sync.Mutex
	children map[string]int // live children by kind
	closing  bool
	done     bool

	users atomic.Int64 // callers inside; negative once closed
}

const closedBias = -1 << 40

// born registers an object with those it stands on.
func (l *life) born(kind, label string, parents ...*life) error {
	for i, p := range parents {
		if err := p.adopt(kind); err != nil {
			for _, q := range parents[:i] {
				q.release(kind)
			}
			return err
		}
	}
	l.label, l.parents = label, parents
	return nil
}

func (l *life) adopt(kind string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing || l.done {
		return opError("use", l.label, ErrClosed)
	}
	if l.children == nil {
		l.children = make(map[string]int)
	}
	l.children[kind]++
	return nil
}

func (l *life) release(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.children[kind]--; l.children[kind] == 0 {
		delete(l.children, kind)
	}
}

// enter must be matched by exit when it answers true; false means closed.
func (l *life) enter() bool {
	if l.users.Add(1) > 0 {
		return true
	}
	l.users.Add(-1)
	return false
}

func (l *life) exit() { l.users.Add(-1) }

// with runs a control-path call inside the object's lifetime.
func (l *life) with(op string, f func() error) error {
	if !l.enter() {
		return opError(op, l.label, ErrClosed)
	}
	defer l.exit()
	return f()
}

// close destroys the object once. If it has children, or destroy fails, the
// object stays usable and close can be called again.
func (l *life) close(kind string, interrupt func(), destroy func() error) error {
	l.mu.Lock()
	if l.done {
		l.mu.Unlock()
		return nil
	}
	if l.closing || len(l.children) > 0 {
		children := fmt.Sprint(l.children)
		l.mu.Unlock()
		return opError("close", l.label, ErrInUse, "live: ", children)
	}
	l.closing = true
	l.mu.Unlock()

	l.users.Add(closedBias)
	if interrupt != nil {
		interrupt()
	}
	// Callers inside are in a C call that ends by itself within microseconds.
	for pause := time.Microsecond; l.users.Load() != closedBias; pause = min(2*pause, time.Millisecond) {
		time.Sleep(pause)
	}
	err := destroy()

	l.mu.Lock()
	l.closing = false
	if err != nil {
		l.users.Add(-closedBias)
	} else {
		l.done = true
	}
	l.mu.Unlock()
	if err != nil {
		return opError("close", l.label, err)
	}
	for _, p := range l.parents {
		p.release(kind)
	}
	return nil
}
