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

	"github.com/goverbs/goverbs/internal/operr"
)

// Life is the lifetime of an object: who stands on it, who is inside a call
// on it right now, and whether it is closed.
//
// A parent refuses to close while it has children, so a child can always use
// its parents. Calls on the data path go through Enter and Exit, two atomic
// additions, so that Close never destroys an object under a call.
type Life struct {
	Label   string // of the object, for errors
	parents []*Life

	mu       sync.Mutex
	children map[string]int // live children by kind
	closing  chan struct{}  // while somebody closes: closed when that has ended
	ruined   bool           // see Ruin
	done     bool

	users atomic.Int64 // callers inside; negative once closed
}

const closedBias = -1 << 40

var serial atomic.Uint64

// Label names an object without a number of its own, such as "cq 7".
func Label(kind string) string { return fmt.Sprintf("%s %d", kind, serial.Add(1)) }

// Born registers an object with those it stands on.
func (l *Life) Born(kind, label string, parents ...*Life) error {
	for i, p := range parents {
		if err := p.Adopt(kind); err != nil {
			for _, q := range parents[:i] {
				q.Release(kind)
			}
			return err
		}
	}
	l.Label, l.parents = label, parents
	return nil
}

// Stillborn undoes Born for an object that could not be made.
func (l *Life) Stillborn(kind string) {
	for _, p := range l.parents {
		p.Release(kind)
	}
}

// Adopt counts a child; it is refused once the object closes.
func (l *Life) Adopt(kind string) error {
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

// Release takes back an Adopt.
func (l *Life) Release(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.children[kind]--; l.children[kind] == 0 {
		delete(l.children, kind)
	}
}

// Enter must be matched by Exit when it answers true; false means closed.
func (l *Life) Enter() bool {
	if l.users.Add(1) > 0 {
		return true
	}
	l.users.Add(-1)
	return false
}

// Exit is the end of a call that Enter let in.
func (l *Life) Exit() { l.users.Add(-1) }

// With runs a control-path call inside the object's lifetime.
func (l *Life) With(op string, f func() error) error {
	if !l.Enter() {
		return operr.New(op, l.Label, operr.ErrClosed)
	}
	defer l.Exit()
	return f()
}

// Open is the error of using an object that is closed, for calls that need
// nothing of it but that.
func (l *Life) Open(op string) error {
	if !l.Enter() {
		return operr.New(op, l.Label, operr.ErrClosed)
	}
	l.Exit()
	return nil
}

// Ruin is called by a destroy function that has destroyed what calls use and has
// more to do: should that fail, nobody gets in any more, but Close can be called
// again.
func (l *Life) Ruin() { l.ruined = true }

// Ruined is for a destroy function that is called again after that.
func (l *Life) Ruined() bool { return l.ruined }

// Quiet waits until those have left who are inside calls that end by themselves, as
// all on the data path do. Others may come in meanwhile.
func (l *Life) Quiet() {
	for pause := time.Microsecond; l.users.Load() > 0; pause = min(2*pause, time.Millisecond) {
		time.Sleep(pause)
	}
}

// Closed tells whether calls are refused.
func (l *Life) Closed() bool { return l.users.Load() < 0 }

// Children is how many of a kind are live.
func (l *Life) Children(kind string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.children[kind]
}

// Moved follows an object from its first parent to another one, which has
// adopted it already; also is carried out in the same moment.
func (l *Life) Moved(kind string, to *Life, also func()) {
	l.mu.Lock()
	old := l.parents[0]
	l.parents[0] = to
	also()
	l.mu.Unlock()
	old.Release(kind)
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
			p.Release(kind)
		}
	}
	l.mu.Lock()
	l.done, l.closing = err == nil, nil
	l.mu.Unlock()
	return operr.New("close", l.Label, err)
}
