package engine

import "time"

// In a silence timers end and no response comes by any path. Either all packets are lost, or all
// wait in a queue that has grown long: then packets that are sent again make it longer.

// endSilence records that something came back by any path.
func (e *Engine) endSilence(p *peer) {
	n := e.network(p)
	n.answered = e.Now
	if p.longs > 0 && p.small == 0 {
		p.small = e.Now
	}
	if n.silent > 0 {
		n.silent = 0
		e.Wake(&p.Peer, e.Now) // timers are as short as before
		e.Enqueue(&p.Peer)
	}
}

// doublings returns how often timers are doubled, since timers have ended in a row while no
// response came by any path: a packet that is sent again by another path waits in the same
// queue. The first timer does not count: a packet was lost. Meanwhile probes show what works.
func (n *network) doublings() uint8 { return 3 * (max(n.silent, 1) - 1) }

// unanswered counts a timer that ended, unless it began before the last counted one ended, or
// something came back meanwhile. It halves the window when timers become longer: too much is
// under way for a queue that no round trip has measured yet.
func (e *Engine) unanswered(n *network, armed time.Duration) {
	if armed < n.silentAt || armed < n.answered {
		return
	}
	n.silentAt = e.Now
	n.silent = min(n.silent+1, 8)
	if n.doublings() > 0 {
		n.window, n.opening = max(n.window/2, smallestWindow), false
	}
}

// afterSilence handles the first round trip after a silence. Packets that timers took for lost,
// and that were sent less than a round trip ago, are still on their way. If more than one timer
// had ended, RTTVar is raised on every path with a shorter timeout than this round trip.
// The round trip itself stays as measured, since the window is judged once in each, and a queue
// may be gone soon.
func (e *Engine) afterSilence(p *peer, rtt time.Duration) {
	n := e.network(p)
	if n.silent == 0 {
		return
	}
	e.restoreLost(p, e.Now-rtt-rtt/8)
	if n.doublings() == 0 {
		return
	}
	for i := range n.paths[:e.cfg.Paths] {
		if x := &n.paths[i]; x.SRTT > 0 && x.Timeout() < rtt {
			x.RTTVar = max(x.RTTVar, rtt/2)
		}
	}
}

// restoreLost moves packets that a timer took for lost, and that were sent after since, back to the
// packets under way.
func (e *Engine) restoreLost(p *peer, since time.Duration) {
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
