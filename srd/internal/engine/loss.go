package engine

import "time"

// waits reports whether there is something to be sent to a peer, given room.
func (e *Engine) waits(p *peer) bool {
	for _, f := range &p.tx {
		if f != nil && (f.Head != none || e.nextLost(f) != none) {
			return true
		}
	}
	return false
}

// holdBack delays the lost packets of a flow until its receiver has memory for them and says so, or
// does not say so for long.
func (e *Engine) holdBack(f *txFlow) {
	l := f.live
	if l == nil || l.hold > 0 {
		return
	}
	l.hold = e.Now + min(AskAgain, e.cfg.PeerTimeout/32)
	e.Wake(&f.p.Peer, l.hold)
}

// heldBack lets a flow go on that was held back for long enough, and else returns the time when
// it may go on, or never.
func (e *Engine) heldBack(f *txFlow) time.Duration {
	l := f.live
	switch {
	case l == nil || l.hold == 0:
		return never
	case e.Now < l.hold:
		return l.hold
	}
	l.hold = 0
	e.Enqueue(&f.p.Peer)
	return never
}

// overtaken takes for lost what was sent by a path well before something that has
// arrived by the same path (RFC 8985): paths reorder among each other, a path hardly.
func (e *Engine) overtaken(f *txFlow, path uint8) {
	s := &f.live.subs[path]
	if s.empty() {
		return
	}
	x := &e.network(f.p).paths[path]
	allowed := max(x.SRTT/4, e.cfg.MinTimeout/8)
	for !s.empty() {
		k := &f.live.ring[s.head]
		if k.sent+allowed >= s.newest {
			if k.sent < s.newest {
				e.Wake(&f.p.Peer, s.armed+e.timeout(f, s, path))
			}
			return
		}
		e.lose(f, f.live.number(f, s.head))
		e.missed(f.p, path) // which may retire the path, and take all
	}
}

// timeout returns how long a sub-flow waits for a response: first until one packet is sent
// again, which may be the last of a message, then until all are. It covers the variation of
// round trips and the delay of responses at peers (RFC 6298, RFC 8985), which is longer in a
// burst.
func (e *Engine) timeout(f *txFlow, s *subFlow, path uint8) time.Duration {
	n := e.network(f.p)
	x := &n.paths[path]
	t := max(x.Timeout(), e.cfg.MinTimeout)
	switch {
	case x.SRTT == 0:
		t = max(5*e.cfg.MinTimeout, 4*n.middle)
	case s.probed:
		t += e.peerDelay(n)
	default:
		t = max(t, 2*x.SRTT) + e.peerDelay(n)
	}
	t += e.held(f, s)
	return min(t<<min(max(s.backoff, n.doublings()), 10), e.cfg.PeerTimeout/8)
}

// held returns how much longer than an AckDelay a response to a sub-flow may wait at its
// receiver, since packets said that others come behind them. It returns 0 once a packet that
// was sent later was acknowledged: that response would have covered this sub-flow, too.
func (e *Engine) held(f *txFlow, s *subFlow) time.Duration {
	l := f.live
	if l.more == 0 || l.more < s.armed || !s.empty() && l.ring[s.head].sent < l.told {
		return 0
	}
	return min(f.live.more-s.armed+(moreDelays-1)*e.ackDelay, (burstDelays-1)*e.ackDelay)
}

// expire handles the timers of the sub-flows that ended, and returns when the next one ends.
func (e *Engine) expire(f *txFlow) time.Duration {
	next := never
	for i := range uint8(e.cfg.Paths) {
		if f.live == nil {
			return never
		}
		s := &f.live.subs[i]
		if s.empty() {
			continue
		}
		end := s.armed + e.timeout(f, s, i)
		if e.Now >= end {
			e.expired(f, i)
			if f.live == nil || s.empty() {
				continue
			}
			end = s.armed + e.timeout(f, s, i)
		}
		next = min(next, end)
	}
	return next
}

func (e *Engine) expired(f *txFlow, path uint8) {
	e.Stats.Timeouts++
	s := &f.live.subs[path]
	all := s.probed
	e.unanswered(e.network(f.p), s.armed)
	s.armed = e.Now
	if s.probed {
		s.backoff = min(s.backoff+1, 10)
	}
	s.probed = true
	sent := f.live.ring[s.head].sent
	works := !all && s.newest >= sent // another packet of the same burst arrived
	late := func() {
		f.live.ring[s.head].late = true
		e.lose(f, f.live.number(f, s.head))
	}
	late()
	if e.network(f.p).newest > sent { // others work meanwhile
		e.missed(f.p, path)
	}
	for all && f.live != nil && !s.empty() {
		late()
	}
	if !works {
		e.timedOut(f.p, path)
	}
}
