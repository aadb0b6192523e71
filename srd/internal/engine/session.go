package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Source is the sender of a packet, as the device reports it.
type Source struct {
	GID [16]byte
	QPN uint32
}

// Receive handles a packet that arrived.
func (e *Engine) Receive(from Source, b []byte) {
	e.Stats.Received++
	k := &e.packet
	if k.Decode(b) != nil {
		e.Stats.Malformed++
		return
	}
	switch k.Type {
	case wire.Hello:
		e.onHello(from, k, b)
		return
	case wire.Reset:
		e.onReset(from, k)
		return
	}
	p := e.byToken(k.Token)
	switch {
	case p == nil:
		e.Stats.WrongToken++
		if k.Type == wire.Flow {
			to := wire.Addr{GID: from.GID, QPN: from.QPN, QKey: e.cfg.Addr.QKey}
			e.replyUnauthenticated(Answer{To: to, Type: wire.Reset, Slot: k.Slot, Reset: k.Token})
		}
		return
	case p.addr.GID != from.GID:
		e.Stats.WrongSource++
		return
	}
	switch k.Type {
	case wire.Challenge:
		e.onChallenge(p, k)
	case wire.Welcome:
		e.onWelcome(p, k)
	case wire.Flow:
		if p.remote == 0 { // its Welcome was lost, and no message here waits for it
			p.wanted = true
			e.greet(p)
			return
		}
		if k.Line != p.theirs {
			e.Stats.OldEpoch++
			return
		}
		e.hears(p)
		p.welcomed = false
		e.onFlow(p, k)
	case wire.Probe:
		e.hears(p)
		p.echo, p.echoPath, p.echoStamp = true, k.SubFlow, k.Stamp
		e.enqueue(p)
	case wire.Echo:
		e.onEcho(p, k)
	}
}

// onFlow handles a packet of an established session.
func (e *Engine) onFlow(p *peer, k *wire.Packet) {
	e.named(p, k.Heard)
	e.network(p).came |= 1 << (k.SubFlow % MaxPaths)
	if k.HasCredit {
		e.onGrant(p, &k.Credit)
	}
	if k.HasResponse {
		e.onResponse(p, &k.Response)
	}
	if k.HasPart {
		e.onPart(p, k)
	}
}

// greet asks for a session, or checks that the old one still exists.
func (e *Engine) greet(p *peer) {
	if p.state == greeting {
		return
	}
	p.state, p.hellos, p.helloAt = greeting, 0, e.now
	if p.net != nil {
		p.net.carried = 0
	}
	e.lastOwn = max(e.lastOwn+1, e.wall())
	p.own = e.lastOwn
	e.enqueue(p)
}

// helloTimeout returns how long a greeting waits for its reply: longer after each path had one.
// It varies by half: peers that greet at once, and find a queue full, would otherwise come back
// at once, and find it full again.
func (e *Engine) helloTimeout(p *peer) time.Duration {
	t := min(4*e.cfg.MinTimeout<<min(int(p.hellos)/e.cfg.Paths, 6), e.cfg.PeerTimeout/8)
	return t/2 + time.Duration(e.rng.Int64N(int64(t)))
}

// onHello grants a session to a peer that asks for one. A stranger first shows by a cookie that
// it receives at its address; or that it has the deployment's key, and that the greeting is not
// an old one. Until then no state is kept for it.
func (e *Engine) onHello(from Source, k *wire.Packet, b []byte) {
	g := &k.Greeting
	if from.GID != g.From.GID || g.Token == 0 || g.Epoch == 0 {
		e.Stats.WrongSource++
		return
	}
	var p *peer
	if i, ok := e.hosts.Slot(g.From); ok {
		p = e.peers[i]
	}
	if p != nil && p.epoch == g.Epoch && p.remote == g.Token { // its Welcome was lost, or it checks
		if p.welcomed && e.cfg.Silent != nil {
			e.cfg.Silent(p.addr)
		}
		p.welcome = true
		e.hears(p)
		e.enqueue(p)
		e.greets(p)
		return
	}
	old := p != nil && (g.Epoch < p.epoch || g.Epoch == p.epoch && g.Stamp <= p.stamp)
	if old {
		e.Stats.OldEpoch++
	}
	if e.cfg.Key != nil {
		if g.MAC != wire.Seal(*e.cfg.Key, &e.cfg.Addr, b[:len(b)-len(k.Bytes)], k.Bytes) {
			e.Stats.WrongKey++
			return
		}
		if !old && e.hosts.Fresh(g, e.wall()) {
			e.adopt(p, k)
			return
		}
	}
	if !old && g.Cookie != 0 {
		if e.hosts.Shows(g, e.now) {
			k.HasPart = false // its message, if any, is sent again by the session
			e.adopt(p, k)
			return
		}
		e.Stats.WrongCookie++
	}
	a := Answer{To: g.From, Type: wire.Challenge, Token: g.Token, Challenge: wire.Challenged{Cookie: e.hosts.Cookie(g, e.now)}}
	if old {
		a.Challenge.Known = p.epoch
	}
	e.replyUnauthenticated(a)
}

// adopt begins a session that the peer asked for.
func (e *Engine) adopt(p *peer, k *wire.Packet) {
	g := &k.Greeting
	if p == nil {
		if e.hosts.Admits(g.From.GID, e.now) {
			p = e.find(g.From)
		}
		if p == nil {
			e.Stats.Unanswered++
			return
		}
	}
	e.renew(p, g.Epoch, g.Token, g.Limits)
	p.stamp, p.welcome = g.Stamp, true
	e.hears(p)
	e.enqueue(p)
	e.enter(p)
	if k.HasPart {
		e.onPart(p, k)
	} else {
		e.greets(p)
	}
}

// renew begins a session with a peer that has forgotten the one before, or is another
// incarnation: the windows of both sides begin anew. Messages sent before may have been
// received, and end as unresponsive, however long ago they were sent, since clocks stop with
// their hosts. The token of a slot never changes, so that both sides mean the same
// session when their greetings cross.
func (e *Engine) renew(p *peer, epoch, token uint64, limits wire.Limits) {
	e.Stats.Sessions++
	// A message that went with a greeting may have reached a predecessor, or the peer, if that
	// asked for a cookie when the greeting came again; but not if the peer has forgotten nothing
	// since. Clocks may differ.
	if p.epoch != 0 || p.net != nil && p.net.carried > 0 && (epoch >= p.own || p.cookie != 0) &&
		e.cfg.Boot()-p.net.carried >= time.Duration(limits.Complete)*time.Millisecond {
		e.fail(p, false)
	}
	e.dropReceived(p)
	p.epoch, p.remote, p.cookie = epoch, token, 0
	p.theirs = wire.Line(epoch, token)
	p.grant = uint16(e.cfg.First)
	e.endTurn(p)
	if p.net != nil {
		p.net.heard, p.net.asking = 0, asking{}
	}
	e.limit(p, limits)
	e.establish(p)
}

func (e *Engine) establish(p *peer) {
	p.ours = wire.Line(p.mine, p.local)
	p.state = established
	e.rearm(p)
	e.enqueue(p)
}

// onChallenge greets again, with the cookie.
func (e *Engine) onChallenge(p *peer, k *wire.Packet) {
	c := &k.Challenge
	if p.state == established && c.Known > p.mine { // the peer knows a later incarnation of this endpoint
		e.greet(p)
		c.Cookie = 0
	}
	if p.state != greeting {
		return
	}
	if c.Known >= p.mine { // the wall clock went back since the last incarnation
		p.mine = c.Known + 1
	}
	if p.cookie != c.Cookie || c.Known != 0 {
		p.cookie, p.helloAt, p.wanted = c.Cookie, e.now, true
		e.enqueue(p)
	}
}

// onWelcome begins or goes on with the session that this side asked for.
func (e *Engine) onWelcome(p *peer, k *wire.Packet) {
	w := &k.Welcome
	if w.Hello != p.mine || w.Token == 0 || w.Epoch == 0 || p.state != greeting {
		return
	}
	e.hears(p)
	switch {
	case w.Epoch < p.epoch:
		e.Stats.OldEpoch++
		e.replyUnauthenticated(Answer{To: p.addr, Type: wire.Challenge, Token: w.Token, Challenge: wire.Challenged{Known: p.epoch}})
		return
	case p.epoch == w.Epoch && p.remote == w.Token:
		e.establish(p)
	default:
		e.renew(p, w.Epoch, w.Token, w.Limits)
	}
	if k.HasCredit {
		e.onGrant(p, &k.Credit)
	}
	if k.HasResponse {
		e.onResponse(p, &k.Response)
	}
	e.resend(p)
}

// onReset verifies a session that the peer seems not to know. Any host can send a Reset:
// nothing is given up before the peer itself confirms it.
func (e *Engine) onReset(from Source, k *wire.Packet) {
	if k.Slot >= uint32(len(e.peers)) {
		e.Stats.Bogus++
		return
	}
	p := e.peers[k.Slot]
	if p.state != established || p.remote != k.Reset || p.addr.GID != from.GID {
		e.Stats.Bogus++
		return
	}
	e.greet(p)
}

func (e *Engine) replyUnauthenticated(a Answer) {
	switch {
	case !e.strangers.Add(a, e.now):
		e.Stats.Unanswered++
	case a.Type == wire.Reset:
		e.Stats.Resets++
	default:
		e.Stats.Challenges++
	}
}
