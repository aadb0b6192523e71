package engine

import "time"

// wake schedules tick for a peer no later than at. Most timers are re-armed before they end:
// tick then finds nothing due, and schedules the next one.
func (e *Engine) wake(p *peer, at time.Duration) {
	if at >= p.wakeAt {
		return
	}
	p.wakeAt = at
	if p.timer < 0 {
		p.timer = int32(len(e.timers))
		e.timers = append(e.timers, p.slot)
	}
	e.up(int(p.timer))
}

// unwake takes a peer out of the heap.
func (e *Engine) unwake(p *peer) {
	i := int(p.timer)
	if i < 0 {
		return
	}
	last := len(e.timers) - 1
	e.swap(i, last)
	e.timers = e.timers[:last]
	p.timer, p.wakeAt = -1, never
	if i < last {
		e.up(i)
		e.down(i)
	}
}

func (e *Engine) before(i, j int) bool {
	return e.peers[e.timers[i]].wakeAt < e.peers[e.timers[j]].wakeAt
}

func (e *Engine) swap(i, j int) {
	t := e.timers
	t[i], t[j] = t[j], t[i]
	e.peers[t[i]].timer, e.peers[t[j]].timer = int32(i), int32(j)
}

func (e *Engine) up(i int) {
	for i > 0 && e.before(i, (i-1)/2) {
		e.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (e *Engine) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(e.timers) {
			return
		}
		if c+1 < len(e.timers) && e.before(c+1, c) {
			c++
		}
		if !e.before(c, i) {
			return
		}
		e.swap(i, c)
		i = c
	}
}

// tick does what is due for a peer, and sets its timer anew.
func (e *Engine) tick(p *peer) {
	e.unwake(p)
	next := never
	at := func(t time.Duration) {
		next = min(next, t)
	}
	if p.state == greeting {
		if e.now >= p.helloAt {
			e.enqueue(p)
		} else {
			at(p.helloAt)
		}
	}
	if e.unsettled(p) {
		if e.now-p.progress >= e.cfg.PeerTimeout {
			e.fail(p, true)
		} else {
			at(e.silence(p))
		}
	}
	if p.state == established {
		e.suspectMTU(p)
		for _, f := range &p.tx {
			if f != nil && f.live != nil {
				at(e.expire(f))
				at(e.heldBack(f))
			}
		}
		at(e.probe(p))
		if p.net != nil {
			at(e.ask(p))
		}
	}
	for _, f := range &p.rx {
		if f == nil {
			continue
		}
		if f.due > 0 && e.now >= f.due {
			f.now, f.due = true, 0
			e.enqueue(p)
		} else if f.due > 0 {
			at(f.due)
		}
		if f.assemblies != nil {
			at(e.reap(p, f))
		}
	}
	if p.net != nil {
		at(e.turnOver(p))
		at(e.rest(p))
	}
	if next != never {
		e.wake(p, max(next, e.now+time.Microsecond))
	}
}

// silence calls Config.Silent for each quarter of PeerTimeout that a peer has been silent for,
// and returns when the next one ends.
func (e *Engine) silence(p *peer) time.Duration {
	quarter := e.cfg.PeerTimeout / 4
	n := min((e.now-p.progress)/max(quarter, 1), 3)
	if uint8(n) > p.quarters && e.cfg.Silent != nil {
		e.cfg.Silent(p.addr)
	}
	p.quarters = uint8(n)
	if n == 3 {
		return p.progress + e.cfg.PeerTimeout
	}
	return p.progress + (n+1)*quarter
}
