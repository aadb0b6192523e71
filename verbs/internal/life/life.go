// Package life has the lifetimes of the objects of verbs and of the packages
// beside it.
package life

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
	"github.com/goverbs/goverbs/internal/operr"
)

// Life is the lifetime of an object: its children, the calls on it that are
// under way, and whether it is closed.
//
// A parent refuses to close while it has children, so a child can always use
// its parents. Calls on the data path go through Enter and Exit, two atomic
// additions, so that Close never destroys an object under a call.
type Life struct {
	Label   string // of the object, for errors
	parents []*Life

	mu        sync.Mutex
	children  map[string]int // live children by kind
	closing   chan struct{}  // during a Close: closed when that has ended
	destroyed bool           // see MarkDestroyed
	done      bool

	users atomic.Int64 // calls under way; negative once closed
}

const closedBias = -1 << 40

var serial atomic.Uint64

// Label names an object without a number of its own, such as "cq 7".
func Label(kind string) string { return fmt.Sprintf("%s %d", kind, serial.Add(1)) }

// Attach registers an object with its parents.
func (l *Life) Attach(kind, label string, parents ...*Life) error {
	for i, p := range parents {
		if err := p.AddChild(kind); err != nil {
			for _, q := range parents[:i] {
				q.RemoveChild(kind)
			}
			return err
		}
	}
	l.Label, l.parents = label, parents
	return nil
}

// Detach undoes Attach for an object that could not be made.
func (l *Life) Detach(kind string) {
	for _, p := range l.parents {
		p.RemoveChild(kind)
	}
}

// AddChild counts a child; it fails with ErrClosed once the object closes.
func (l *Life) AddChild(kind string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing != nil || l.done {
		return operr.New("use", l.Label, operr.ErrClosed)
	}
	if l.children == nil {
		l.children = make(map[string]int)
	}
	l.children[kind]++
	return nil
}

// RemoveChild undoes an AddChild.
func (l *Life) RemoveChild(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.children[kind]--; l.children[kind] == 0 {
		delete(l.children, kind)
	}
}

// Enter must be matched by Exit when it returns true; false means closed.
func (l *Life) Enter() bool {
	if l.users.Add(1) > 0 {
		return true
	}
	l.users.Add(-1)
	return false
}

// Exit ends a call that Enter admitted.
func (l *Life) Exit() { l.users.Add(-1) }

// With runs a control-path call inside the object's lifetime.
func (l *Life) With(op string, f func() error) error {
	if !l.Enter() {
		return operr.New(op, l.Label, operr.ErrClosed)
	}
	defer l.Exit()
	return f()
}

// Open returns the error of using a closed object, or nil, for calls that
// need nothing else of the object.
func (l *Life) Open(op string) error {
	if !l.Enter() {
		return operr.New(op, l.Label, operr.ErrClosed)
	}
	l.Exit()
	return nil
}

// MarkDestroyed is called by a destroy function that has destroyed what calls use and has
// more to do: should that fail, calls are refused all the same, but Close can be
// called again.
func (l *Life) MarkDestroyed() { l.destroyed = true }

// Destroyed reports whether MarkDestroyed was called, for a destroy function that is called again.
func (l *Life) Destroyed() bool { return l.destroyed }

// WaitIdle waits for calls in progress to return, which must end by themselves, as all on
// the data path do. New calls may begin meanwhile. Close may be waiting for the same calls.
func (l *Life) WaitIdle() {
	for pause := backoff.New(time.Microsecond, time.Millisecond); ; pause.Sleep() {
		if n := l.users.Load(); n == 0 || n == closedBias {
			return
		}
	}
}

// Closed reports whether calls are refused.
func (l *Life) Closed() bool { return l.users.Load() < 0 }

// Children returns how many of a kind are live.
func (l *Life) Children(kind string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.children[kind]
}

// Moved moves an object from its first parent to another one, which has
// adopted it already; it calls also with mu held.
func (l *Life) Moved(kind string, to *Life, also func()) {
	l.mu.Lock()
	old := l.parents[0]
	l.parents[0] = to
	also()
	l.mu.Unlock()
	old.RemoveChild(kind)
}

// Close destroys the object once; callers at the same time wait for that. If it
// has children, or destroy fails, the object stays usable (unless it is ruined)
// and Close can be called again.
func (l *Life) Close(kind string, interrupt func(), destroy func() error) error {
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
		var open []string
		for _, kind := range slices.Sorted(maps.Keys(l.children)) {
			open = append(open, fmt.Sprint(l.children[kind], " ", kind))
		}
		l.mu.Unlock()
		return operr.New("close", l.Label, operr.ErrInUse, "still open: ", strings.Join(open, ", "))
	}
	ended := make(chan struct{})
	l.closing = ended
	l.mu.Unlock()
	defer close(ended)

	if !l.destroyed {
		l.users.Add(closedBias)
	}
	if interrupt != nil {
		interrupt()
	}
	// Calls under way are in C calls that end by themselves within microseconds.
	for pause := backoff.New(time.Microsecond, time.Millisecond); l.users.Load() != closedBias; pause.Sleep() {
	}
	err := destroy()

	switch {
	case err != nil && !l.destroyed:
		l.users.Add(-closedBias)
	case err == nil:
		// Before other callers of Close return: they may close the parents next.
		for _, p := range l.parents {
			p.RemoveChild(kind)
		}
	}
	l.mu.Lock()
	l.done, l.closing = err == nil, nil
	l.mu.Unlock()
	return operr.New("close", l.Label, err)
}
