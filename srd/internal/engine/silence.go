package engine

import "time"

// Silence is when timers end and nothing is answered by any path. Either all is lost, or all
// waits in a queue that has grown long: then what is sent again makes it longer.

// answers notes that something came back by any path.
func (e *Engine) answers(p *peer) {
	n := e.network(p)
	n.answered = e.now
	if p.longs > 0 && p.small == 0 {
		p.small = e.now
	}
	if n.silent > 0 {
		n.silent = 0
		e.wake(p, e.now) // timers are as short as before
		e.enqueue(p)
	}
}

// patience is by how much timers are longer, in doublings, since timers have ended in a row
// while nothing was answered by any path: what is sent again by another one waits in the same
// queue. The first one is for a packet that was lost. Meanwhile probes tell what works.
func (n *network) patience() uint8 { return 3 * (max(n.silent, 1) - 1) }

// unanswered counts a timer that ended, unless it began before the last one that was counted
// did, or something came back meanwhile. There is too much under way for a queue that nobody
// has measured yet.
func (e *Engine) unanswered(n *network, armed time.Duration) {
	if armed < n.silentAt || armed < n.answered {
		return
	}
	n.silentAt = e.now
	n.silent = min(n.silent+1, 8)
	if n.patience() > 0 {
		n.window, n.opening = max(n.window/2, smallestWindow), false
	}
}

// afterSilence takes the first round trip after a silence. What timers took for lost, and
// was not sent so long ago, is still on its way. After more than one of them had ended,
// timers of all paths that were shorter allow for it: none was answered sooner. The round trip itself stays as
// measured, since the window is judged once in each, and a queue may be gone soon.
func (e *Engine) afterSilence(p *peer, rtt time.Duration) {
	n := e.network(p)
	if n.silent == 0 {
		return
	}
	e.unlose(p, e.now-rtt-rtt/8)
	if n.patience() == 0 {
		return
	}
	for i := range n.paths[:e.cfg.Paths] {
		if x := &n.paths[i]; x.srtt > 0 && x.srtt+4*x.rttvar < rtt {
			x.rttvar = max(x.rttvar, rtt/2)
		}
	}
}

// unlose takes what a timer took for lost, and was sent since then, for under way again.
func (e *Engine) unlose(p *peer, since time.Duration) {
	for _, f := range &p.tx {
		if f == nil || f.live == nil {
			continue
		}
		l := f.live
		for i := l.lost.head; i != none; {
			k, seq := &l.ring[i], l.number(f, i)
			i = k.next
			if !k.late || k.sent < since || e.network(p).paths[k.path].retired {
				continue
			}
			l.remove(&l.lost, seq)
			k.cancel = e.messages[k.message].reason != 0 // a reporting service had begun to ask for it
			e.resumes(f, seq)
		}
	}
}
