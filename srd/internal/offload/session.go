package offload

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Receive handles a packet that arrived from a queue pair. The device reports only the sender's
// queue pair number: tokens, cookies and keyed codes do the rest.
func (m *Machine) Receive(qpn uint32, b []byte) {
	m.Stats.Received++
	k := &m.packet
	if k.Decode(b) != nil {
		m.Stats.Malformed++
		return
	}
	if k.Type == wire.Hello {
		m.onHello(qpn, k, b)
		return
	}
	p := m.byToken(k.Token)
	switch {
	case p == nil:
		// A reply is impossible: the packet does not say where it is from. Its
		// sender greets when it has heard nothing for a while.
		m.Stats.WrongToken++
		return
	case p.addr.QPN != qpn:
		m.Stats.WrongSource++
		return
	}
	switch k.Type {
	case wire.Challenge:
		m.onChallenge(p, k)
	case wire.Welcome:
		m.onWelcome(p, k)
	case wire.Flow:
		switch {
		case p.remote == 0: // its Welcome did not come yet, and no message here waits for it
			p.wanted = true
			m.greet(p)
		case k.Line != p.theirs:
			m.Stats.OldEpoch++
		default:
			m.onFlow(p, k)
		}
	default:
		m.Stats.Bogus++
	}
}

// onFlow handles a packet of an established session.
func (m *Machine) onFlow(p *peer, k *wire.Packet) {
	p.held = false
	m.hears(p)
	if k.HasCredit {
		m.onCredit(p, &k.Credit)
	}
	if k.HasResponse {
		m.onResponse(p, &k.Response, k.Stamp)
	}
	if k.HasPart {
		m.onPart(p, k)
	}
}

// greet asks for a session, or checks that the old one still exists.
func (m *Machine) greet(p *peer) {
	if p.state == greeting {
		return
	}
	p.state, p.hellos, p.helloAt = greeting, 0, m.now
	m.lastOwn = max(m.lastOwn+1, m.wall())
	p.own = m.lastOwn
	m.enqueue(p)
}

// helloTimeout returns how long a greeting waits for its reply: the peer may have had no
// buffer for the greeting, or this side none for the reply.
func (m *Machine) helloTimeout(p *peer) time.Duration {
	return min(8*m.cfg.RetryDelay<<min(int(p.hellos), 6), m.cfg.PeerTimeout/8)
}

// onHello grants a session to a peer that asks for one. A stranger first shows by a cookie that
// it receives at its address; or that it has the deployment's key, and that the greeting is not
// an old one. Until then no state is kept for it.
func (m *Machine) onHello(qpn uint32, k *wire.Packet, b []byte) {
	g := &k.Greeting
	if qpn != g.From.QPN || g.Token == 0 || g.Epoch == 0 || k.HasPart || k.HasResponse || k.HasCredit {
		m.Stats.WrongSource++
		return
	}
	var p *peer
	if i, ok := m.hosts.Slot(g.From); ok {
		p = m.peers[i]
	}
	if m.cfg.Key != nil && g.MAC != wire.Seal(*m.cfg.Key, &m.cfg.Addr, b, nil) {
		m.Stats.WrongKey++
		return
	}
	if p != nil && p.epoch == g.Epoch && p.remote == g.Token { // its Welcome did not come, or it checks
		p.welcome = true
		m.hears(p)
		p.stamp = max(p.stamp, g.Stamp)
		m.repeat(p)
		return
	}
	old := p != nil && (g.Epoch < p.epoch || g.Epoch == p.epoch && g.Stamp <= p.stamp)
	switch {
	case old:
		m.Stats.OldEpoch++
	case m.cfg.Key != nil && m.hosts.Fresh(g, m.wall()):
		m.adopt(p, g)
		return
	case g.Cookie == 0:
	case m.hosts.Shows(g, m.now):
		m.adopt(p, g)
		return
	default:
		m.Stats.WrongCookie++
	}
	c := wire.Challenged{Cookie: m.hosts.Cookie(g, m.now)}
	if old {
		c.Known = p.epoch
	}
	m.replyUnauthenticated(g.From, g.Token, c)
}

// repeat sends credit and all responses again to a peer that checks its session: the last ones
// may not have arrived.
func (m *Machine) repeat(p *peer) {
	p.told, p.answer = p.arrived-1, true
	for _, f := range p.rx {
		if f != nil {
			f.due = true
		}
	}
	m.enqueue(p)
}

// adopt begins a session that the peer asked for.
func (m *Machine) adopt(p *peer, g *wire.Greeting) {
	if p == nil {
		if m.hosts.Admits(g.From.GID, m.now) {
			p = m.find(g.From)
		}
		if p == nil {
			m.Stats.Unanswered++
			return
		}
	}
	m.renew(p, g.Epoch, g.Token, g.Limits)
	p.stamp, p.welcome, p.held = g.Stamp, true, true
	m.hears(p)
	m.enter(p)
	m.enqueue(p)
}

// renew begins a session with a peer that has forgotten the one before, or is another
// incarnation: the numbers of both sides begin anew. Messages sent before may have been
// received, and end as unresponsive.
func (m *Machine) renew(p *peer, epoch, token uint64, limits wire.Limits) {
	m.Stats.Sessions++
	m.part(p, false)
	m.dropReceived(p)
	p.epoch, p.remote, p.cookie = epoch, token, 0
	p.theirs = wire.Line(epoch, token)
	m.begin(p)
	m.limit(p, limits)
	m.establish(p)
}

func (m *Machine) establish(p *peer) {
	p.ours = wire.Line(p.mine, p.local)
	p.state = established
	p.progress = m.now
	if p.unsettled() {
		m.wake(p, m.now+m.cfg.PeerTimeout/4)
	}
	m.enqueue(p)
}

// onChallenge greets again, with the cookie.
func (m *Machine) onChallenge(p *peer, k *wire.Packet) {
	c := &k.Challenge
	if p.state == established && c.Known > p.mine { // the peer knows a later incarnation of this endpoint
		m.greet(p)
		c.Cookie = 0
	}
	if p.state != greeting {
		return
	}
	if c.Known >= p.mine { // the wall clock went back since the last incarnation
		// The peer took nothing from an incarnation that is older than the one it knows.
		m.part(p, c.Known > p.mine)
		m.begin(p)
		p.mine = c.Known + 1
	}
	if p.cookie != c.Cookie || c.Known != 0 {
		p.cookie, p.helloAt, p.wanted = c.Cookie, m.now, true
		m.enqueue(p)
	}
}

// onWelcome begins or goes on with the session that this side asked for.
func (m *Machine) onWelcome(p *peer, k *wire.Packet) {
	w := &k.Welcome
	// A late Welcome, when no message waits for it, counts too: the peer relies on it.
	if w.Hello != p.mine || w.Token == 0 || w.Epoch == 0 || p.state == established {
		return
	}
	switch {
	case w.Epoch < p.epoch:
		m.Stats.OldEpoch++
		m.replyUnauthenticated(p.addr, w.Token, wire.Challenged{Known: p.epoch})
	case p.epoch == w.Epoch && p.remote == w.Token:
		m.hears(p)
		m.establish(p)
		if p.checks >= 2 {
			m.resend(p)
		}
	default:
		m.hears(p)
		m.renew(p, w.Epoch, w.Token, w.Limits)
	}
}

func (m *Machine) replyUnauthenticated(to wire.Addr, token uint64, c wire.Challenged) {
	if m.strangers.Add(engine.Answer{To: to, Type: wire.Challenge, Token: token, Challenge: c}, m.now) {
		m.Stats.Challenges++
	} else {
		m.Stats.Unanswered++
	}
}
