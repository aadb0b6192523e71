package lockoffload

import (
	"cmp"
	"sync/atomic"
	"time"
)

// Retry says how often a lock command that found the lock held is issued
// again. The zero value tries until the context ends.
//
// The first pause of a call is about as long as the client's requests took of late, a
// measure of the target's distance and load. Each further one is twice as long.
type Retry struct {
	Tries int           // at most so many; 0: no limit
	Min   time.Duration // shortest pause; 0: 20 us
	Max   time.Duration // longest pause; 0: 100 ms
}

func (r Retry) withDefaults() Retry {
	r.Min = cmp.Or(max(r.Min, 0), 20*time.Microsecond)
	r.Max = max(cmp.Or(max(r.Max, 0), 100*time.Millisecond), r.Min)
	return r
}

// pause returns the pause after a try that failed, with failed failures before it. Holders
// need a round trip or two, and more where many use the target.
func (r Retry) pause(roundTrip time.Duration, failed int) time.Duration {
	p := max(roundTrip, r.Min)
	for ; failed > 0 && p < r.Max; failed-- {
		p *= 2
	}
	return min(p, r.Max)
}

// pace is the moving average of the time that lists of requests take, from posting to the
// last reply. Of values that goroutines note at the same time some may be lost.
type pace struct{ took atomic.Int64 }

func (p *pace) note(d time.Duration) {
	if old := p.took.Load(); old > 0 {
		d = time.Duration(old + (int64(d)-old)/8)
	}
	p.took.Store(int64(d))
}

func (p *pace) roundTrip() time.Duration { return time.Duration(p.took.Load()) }
