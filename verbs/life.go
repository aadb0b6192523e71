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
	closing  chan struct{}  // while somebody closes: closed when that has ended
	ruined   bool           // see ruin
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

// stillborn undoes born for an object that could not be made.
func (l *life) stillborn(kind string) {
	for _, p := range l.parents {
		p.release(kind)
	}
}

func (l *life) adopt(kind string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing != nil || l.done {
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

// open is the error of using an object that is closed, for calls that need
// nothing of it but that.
func (l *life) open(op string) error {
	if !l.enter() {
		return opError(op, l.label, ErrClosed)
	}
	l.exit()
	return nil
}

// ruin is called by a destroy function that has destroyed what calls use and has
// more to do: should that fail, nobody gets in any more, but close can be called
// again.
func (l *life) ruin() { l.ruined = true }

// close destroys the object once; callers at the same time wait for that. If it
// has children, or destroy fails, the object stays usable (unless it is ruined)
// and close can be called again.
func (l *life) close(kind string, interrupt func(), destroy func() error) error {
	l.mu.Lock()
	for l.closing != nil {
		other := l.closing
		l.mu.Unlock()
		<-other
		l.mu.Lock()
	}
	if l.done {
		l.mu.Unlock()
		return nil
	}
	if len(l.children) > 0 {
		children := fmt.Sprint(l.children)
		l.mu.Unlock()
		return opError("close", l.label, ErrInUse, "live: ", children)
	}
	ended := make(chan struct{})
	l.closing = ended
	l.mu.Unlock()
	defer close(ended)

	if !l.ruined {
		l.users.Add(closedBias)
	}
	if interrupt != nil {
		interrupt()
	}
	// Callers inside are in a C call that ends by itself within microseconds.
	for pause := time.Microsecond; l.users.Load() != closedBias; pause = min(2*pause, time.Millisecond) {
		time.Sleep(pause)
	}
	err := destroy()

	switch {
	case err != nil && !l.ruined:
		l.users.Add(-closedBias)
	case err == nil:
		// Before anybody else hears that it is closed: the parents are next.
		for _, p := range l.parents {
			p.release(kind)
		}
	}
	l.mu.Lock()
	l.done, l.closing = err == nil, nil
	l.mu.Unlock()
	return opError("close", l.label, err)
}
