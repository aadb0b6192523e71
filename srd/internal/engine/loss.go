package engine

import (
	"math/bits"
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// onResponse handles a peer's response for a flow.
func (e *Engine) onResponse(p *peer, r *wire.Response) {
	n := e.network(p)
	e.granted(p, r.Grant)
	n.pressure = r.Pressure
	if e.waits(p) { // there may be room again, for any flow
		e.Enqueue(&p.Peer)
	}
	f := p.tx[r.Service]
	if f == nil {
		e.Stats.Bogus++
		return
	}
	switch {
	case n.pressure == NoMemory:
		p.Progress, p.large = e.Now, e.Now // the peer is there, and packets arrive
		e.holdBack(f)
	case f.live != nil && f.live.hold > 0:
		f.live.hold = 0
		e.Enqueue(&p.Peer)
	}
	echoed := r.HasEcho && int(r.EchoPath) < e.cfg.Paths
	fresh := false
	var sentAt, rtt time.Duration
	if echoed {
		age := time.Duration(e.Stamp()-r.EchoStamp) * time.Microsecond
		rtt = age - time.Duration(r.Delay)*time.Microsecond
		if echoed = age < e.cfg.PeerTimeout && rtt >= 0; echoed {
			sentAt, fresh = e.Now-age, e.newer(&n.paths[r.EchoPath], age)
		}
		if fresh {
			n.newest = max(n.newest, sentAt)
			e.afterSilence(p, rtt)
			e.endSilence(p)
			e.sample(p, r.EchoPath, rtt)
			if f.live != nil && f.live.more < sentAt { // in a burst they wait longer
				n.waits(time.Duration(r.Delay) * time.Microsecond)
			}
		}
	}
	if f.live == nil {
		return
	}
	if r.Base-f.una > f.nxt-f.una && f.una-r.Base > wire.Window { // of packets never sent
		e.Stats.Bogus++
		return
	}
	progress, more := false, f.live.more
	var last [MaxPaths]time.Duration // when the packet was sent that arrived last by each path
	var by uint16                    // paths by which one did
	settle := func(seq uint32) {
		l := f.live
		if l == nil || !l.has(f, seq) || l.at(seq).state == settled {
			return
		}
		k := l.at(seq)
		progress = true
		path, sent, tries := k.path, k.sent, k.tries
		i := seq - r.Floor
		refused := i < 64*uint32(r.NRefused) && r.Refused[i/64]>>(i%64)&1 != 0
		if tries == 1 { // else it is not known by which path it arrived
			s := &l.subs[path]
			s.newest, l.told = max(s.newest, sent), max(l.told, sent)
			s.armed, s.probed, s.backoff = e.Now, false, 0
			last[path] = max(last[path], sent)
			by |= 1 << path
			e.arrived(p, path)
		}
		e.packetSettled(f, seq, refused)
	}
	for s := f.una; int32(r.Base-s) > 0 && s != f.nxt; s++ {
		settle(s)
	}
	for w := range uint32(r.NSeen) {
		for set := r.Seen[w]; set != 0; set &= set - 1 {
			settle(r.Base + 64*w + uint32(bits.TrailingZeros64(set)))
		}
	}
	if progress {
		p.Progress = e.Now
		e.endSilence(p)
	}
	if echoed && !fresh && (progress || n.paths[r.EchoPath].strayed()) {
		e.sample(p, r.EchoPath, rtt)
		fresh = progress
	}
	for ; by != 0; by &= by - 1 { // one packet is echoed, by one path
		i := bits.TrailingZeros16(by)
		if sent := last[i]; sent > more && !(echoed && i == int(r.EchoPath)) { // how long others waited in a burst is not known
			e.sample(p, uint8(i), e.Now-sent-min(time.Duration(r.Delay)*time.Microsecond, e.ackDelay))
		}
	}
	l := f.live
	if l == nil {
		return
	}
	if fresh { // a response of that sub-flow, whatever it says of others
		s := &l.subs[r.EchoPath]
		s.newest, l.told = max(s.newest, sentAt), max(l.told, sentAt)
		s.armed, s.probed, s.backoff = e.Now, false, 0
		n.paths[r.EchoPath].works()
	}
	for i := range e.cfg.Paths {
		e.overtaken(f, uint8(i))
	}
}

// waits reports whether there is something to be sent to a peer, given room.
func (e *Engine) waits(p *peer) bool {
	for _, f := range &p.tx {
		if f != nil && (f.head != none || e.nextLost(f) != none) {
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
	allowed := max(x.srtt/4, e.cfg.MinTimeout/8)
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
	t := max(x.srtt+4*x.rttvar, e.cfg.MinTimeout)
	switch {
	case x.srtt == 0:
		t = max(5*e.cfg.MinTimeout, 4*n.middle)
	case s.probed:
		t += e.peerDelay(n)
	default:
		t = max(t, 2*x.srtt) + e.peerDelay(n)
	}
	t += e.held(f, s)
	return min(t<<min(max(s.backoff, n.patience()), 10), e.cfg.PeerTimeout/8)
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
