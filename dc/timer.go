package dc

import (
	"sync"
	"time"

	"github.com/goverbs/goverbs/dc/internal/session"
)

// never is when nothing is to be done.
const never = session.Never

// timer calls a function when a state machine wants its tick. A later time than
// the one that is set is ignored: the tick then finds nothing to do and sets it
// again.
type timer struct {
	f    func()
	t    *time.Timer
	at   time.Duration
	work sync.WaitGroup
}

func (a *timer) init(f func()) { a.f, a.at = f, never }

// set is called with the owner's lock held.
func (a *timer) set(at, now time.Duration) {
	if at >= a.at {
		return
	}
	a.at = at
	d := max(at-now, time.Millisecond)
	if a.t == nil {
		a.work.Add(1)
		a.t = time.AfterFunc(d, func() {
			defer a.work.Done()
			a.f()
		})
		return
	}
	if !a.t.Stop() {
		a.work.Add(1) // the last call has begun
	}
	a.t.Reset(d)
}

// expired is called with the owner's lock held, when the function runs.
func (a *timer) expired() { a.at = never }

// stop waits for a call under way. It is called without the owner's lock, which
// must have seen to it that set is not called any more.
func (a *timer) stop() {
	if a.t != nil && a.t.Stop() {
		a.work.Done()
	}
	a.work.Wait()
}
