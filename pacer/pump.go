package pacer

import "time"

// unlock posts everything that may go, and releases the lock.
func (p *Pacer) unlock() {
	p.pump(p.now())
	p.release()
}

// release releases the lock and wakes the waiters of all CQs in p.wakes.
func (p *Pacer) release() {
	if len(p.wakes) == 0 {
		p.mu.Unlock()
		return
	}
	p.wake()
}

func (p *Pacer) wake() {
	for {
		var wake [8]*CQ
		n := copy(wake[:], p.wakes)
		p.wakes = append(p.wakes[:0], p.wakes[n:]...)
		for _, c := range wake[:n] {
			c.woken = false
		}
		more := len(p.wakes) > 0
		p.mu.Unlock()
		for _, c := range wake[:n] {
			c.d.Wake(&c.nobody)
		}
		if !more {
			return
		}
		p.mu.Lock()
	}
}

// pump posts the requests that may go. p.mu must be held.
func (p *Pacer) pump(now time.Duration) {
	if !p.s.Held() {
		p.collect()
		return
	}
	var last *QP
	for {
		g, ok := p.s.Next(now)
		if !ok {
			if last == nil {
				break
			}
			last.flush() // what cannot be posted gives credit back
			last = nil
			p.collect()
			continue
		}
		q := p.requests[g.Request].qp
		if q == nil {
			p.requests[g.Request].admitted(g.Sub)
			continue
		}
		if last != nil && last != q {
			last.flush()
		}
		q.granted(g)
		last = q
	}
	p.collect()
	p.arm(now)
}

// collect hands out the requests that are over.
func (p *Pacer) collect() {
	for p.s.Ended() {
		n, _, complete, _ := p.s.Finished()
		r := &p.requests[n]
		if r.qp == nil {
			p.s.Free(n)
			continue
		}
		r.qp.finished(n, complete)
	}
}

// arm sets the timer for [Pacer.tick]: for when a bucket has enough, and to reapIn if
// completions that the program does not poll may hold requests.
func (p *Pacer) arm(now time.Duration) {
	at, ok := p.s.Wake()
	if soon := now + p.reapIn; p.s.Held() && p.underWay() && len(p.queues) > 0 && (!ok || at > soon) {
		at, ok = soon, true
	}
	if !ok || p.closed || p.armed != 0 && p.armed <= at {
		return
	}
	p.armed = max(at, now, 1)
	p.timer.Reset(p.armed - now)
}

// tick posts requests when a bucket has enough, and polls for a program that does not.
func (p *Pacer) tick() {
	p.mu.Lock()
	p.armed = 0
	polled := p.came != p.seen
	p.mu.Unlock()
	found := p.reap()
	p.mu.Lock()
	if p.seen = p.came; polled && !found {
		p.reapIn = min(2*p.reapIn, maxReap)
	} else {
		p.reapIn = reapAfter
	}
	p.unlock()
}

// reap polls for a program that does not: credit of its completions holds requests of this
// process, or of others that share the threshold. It reports whether there were completions.
func (p *Pacer) reap() (found bool) {
	var few [16]*CQ
	polls := few[:0]
	p.mu.Lock()
	if p.underWay() {
		for _, c := range p.queues {
			polls = append(polls, c)
		}
	}
	p.mu.Unlock()
	for _, c := range polls {
		n, _ := c.d.Poll(0)
		found = found || n > 0
	}
	return found
}

// underWay reports whether completions are to come. All requests have bytes on the wire.
func (p *Pacer) underWay() bool { return p.s.Outstanding()+p.s.Sending() > 0 }

// reapAfter is how long held requests wait before the pacer polls by itself. The time grows up
// to maxReap while completions come and the pacer finds none: then the program polls.
const (
	reapAfter = 2 * time.Millisecond
	maxReap   = 16 * time.Millisecond
)
