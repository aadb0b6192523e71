package procs

import (
	"time"
)

// Yield makes scheduling points for a goroutine that polls for a long time. The zero
// value is ready to use.
//
// The runtime sends a signal to a goroutine that has run for 10 ms without a scheduling
// point. If it is in a call into C just then, its P is taken away, and the runtime's
// monitor thread then looks every 20 us whether there is more to take. On a machine with
// few CPUs that can cost as much as the polling itself (measured: half of the
// instructions of a READ on one CPU). A scheduling point every few milliseconds, in which
// the goroutine goes on at once when no other wants to run, prevents all of that. It
// is not free: the runtime wakes an idle thread to look for work, some 0.2 ms of
// instructions if there is but one CPU, which falls into whatever the program does next.
type Yield struct{ last time.Duration }

// yieldInterval is below the 10 ms after which the runtime interferes.
const yieldInterval = 8 * time.Millisecond

// Due reports whether the last scheduling point is long ago, so that the caller should release its
// locks and call [runtime.Gosched]; now is the time since the loop began, which a polling loop
// has at hand anyway.
func (y *Yield) Due(now time.Duration) bool {
	if now-y.last <= yieldInterval {
		return false
	}
	y.last = now
	return true
}
