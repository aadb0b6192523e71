package lockoffload

import "time"

// Retry says how often a lock command that found the lock held is issued
// again. The zero value tries until the context ends.
type Retry struct {
	Tries int           // at most so many; 0: no limit
	Min   time.Duration // shortest pause; 0: 20 us
	Max   time.Duration // longest pause; 0: 100 ms
}

func (r Retry) withDefaults() Retry {
	if r.Min <= 0 {
		r.Min = 20 * time.Microsecond
	}
	if r.Max <= 0 {
		r.Max = 100 * time.Millisecond
	}
	r.Max = max(r.Max, r.Min)
	return r
}

// backoff adapts the pause to the share of failed tries on a slot: above one half
// it doubles, below one tenth it halves. It has no clock: callers sleep.
type backoff struct {
	min, max, pause time.Duration
	tries, failed   int
}

const backoffWindow = 8 // tries after which the share is looked at

func (b *backoff) note(failed bool) {
	b.pause = max(b.pause, b.min)
	b.tries++
	if failed {
		b.failed++
	}
	if b.tries < backoffWindow {
		return
	}
	switch {
	case b.failed*2 > b.tries:
		b.pause = min(b.pause*2, b.max)
	case b.failed*10 < b.tries:
		b.pause = max(b.pause/2, b.min)
	}
	b.tries, b.failed = 0, 0
}
