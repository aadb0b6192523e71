package cache

import (
	"runtime"
	"time"

	"github.com/goverbs/goverbs/internal/procs"
)

// yield says when a goroutine that READs is to make a scheduling point. A READ that is over as soon as it has been
// posted makes none, and the runtime preempts a goroutine without one after 10 ms: in the middle of a READ it takes
// the P away, and then looks every 20 us for more to take. On one CPU that cost a crowd of clients a quarter of its
// READs. The session's mutex guards it.
type yield struct {
	units int
	poll  procs.Yield
}

const (
	unitsPerLook = 6    // at the clock, which are less than 2 ms on Soft-RoCE
	unitBytes    = 2048 // that take about as long as a READ does in any case
)

// due is called after n READs, of so many bytes together. It reports whether to call [runtime.Gosched] once the
// session's mu is released.
func (y *yield) due(n, bytes int, begun *time.Time) bool {
	y.units += n + bytes/unitBytes
	return y.units >= unitsPerLook && y.look(begun)
}

func (y *yield) look(begun *time.Time) bool {
	y.units = 0
	return y.poll.Due(time.Since(*begun))
}

// yieldAfter yields, if that is due, after READs of n records together. mu must not be held.
func (s *session) yieldAfter(n int) {
	s.mu.Lock()
	due := s.yield.due(n, 0, &s.begun)
	s.mu.Unlock()
	if due {
		runtime.Gosched()
	}
}
