package session

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Greet asks for a session, or checks that the old one still exists.
func (s *Sessions) Greet(p *Peer) {
	if p.State == Greeting {
		return
	}
	p.State, p.Hellos, p.HelloAt = Greeting, 0, s.Now
	s.lastOwn = max(s.lastOwn+1, s.Wall())
	p.Own = s.lastOwn
	s.Enqueue(p)
}

// limits returns the limits that greetings carry.
func (s *Sessions) limits() wire.Limits {
	return wire.LimitsOf(s.cfg.MTU, s.cfg.MaxMessage, s.cfg.EvictAge, s.cfg.Boot()-s.intact)
}

// Hello makes a packet the next greeting of a peer.
func (s *Sessions) Hello(p *Peer, k *wire.Packet) {
	p.Hellos = min(p.Hellos+1, 200)
	k.Type, k.Token = wire.Hello, 0
	k.Greeting = wire.Greeting{From: s.cfg.Addr, Epoch: p.Mine, Token: p.Local, Stamp: p.Own, Limits: s.limits(), Cookie: p.Cookie}
}

// GreetAgain has a peer greeted again after d, unless it replies.
func (s *Sessions) GreetAgain(p *Peer, d time.Duration) {
	p.HelloAt = s.Now + d
	s.Wake(p, p.HelloAt)
}

// Seal completes an encoded Hello to an address that goes with the bytes of a part, if there is a
// key.
func (s *Sessions) Seal(to *wire.Addr, hello, bytes []byte) {
	if s.cfg.Key != nil {
		wire.SetMAC(hello, wire.Seal(*s.cfg.Key, to, hello, bytes))
	}
}

// Greeted handles a greeting, which is b, and grants a session to a peer that asks for one. A
// peer first shows by a cookie that it receives at its address; or that it has the
// deployment's key, and that the greeting is not an old one. Until then no state is kept for it.
// Greeted returns the peer if a session has begun, or the peer has checked the one that it has.
func (s *Sessions) Greeted(k *wire.Packet, b []byte) (p *Peer, begun bool) {
	g := &k.Greeting
	if g.Token == 0 || g.Epoch == 0 {
		s.Stats.WrongSource++
		return nil, false
	}
	if s.cfg.Key != nil && g.MAC != wire.Seal(*s.cfg.Key, &s.cfg.Addr, b[:len(b)-len(k.Bytes)], k.Bytes) {
		s.Stats.WrongKey++
		return nil, false
	}
	p = s.Lookup(g.From)
	if p != nil && p.Epoch == g.Epoch && p.Remote == g.Token { // its Welcome was lost, or it checks
		s.welcome(p, max(p.Stamp, g.Stamp))
		return p, false
	}
	old := p != nil && (g.Epoch < p.Epoch || g.Epoch == p.Epoch && g.Stamp <= p.Stamp)
	switch {
	case old:
		s.Stats.OldEpoch++
	case s.cfg.Key != nil && s.fresh(g):
		return s.adopt(p, g)
	case g.Cookie == 0:
	case s.shows(g):
		k.HasPart = false // its message, if any, is sent again by the session
		return s.adopt(p, g)
	default:
		s.Stats.WrongCookie++
	}
	a := Reply{To: g.From, Type: wire.Challenge, Token: g.Token, Challenge: wire.Challenged{Cookie: s.Cookie(g)}}
	if old {
		a.Challenge.Known = p.Epoch
	}
	s.Reply(a)
	return nil, false
}

// adopt begins a session that a peer asked for.
func (s *Sessions) adopt(p *Peer, g *wire.Greeting) (_ *Peer, begun bool) {
	if p == nil && s.admits(&g.From.GID) {
		p = s.Find(g.From)
	}
	if p == nil {
		s.Stats.Unanswered++
		return nil, false
	}
	s.Renew(p, g.Epoch, g.Token, g.Limits)
	s.welcome(p, g.Stamp)
	return p, true
}

// welcome has a Welcome sent for a greeting with a stamp.
func (s *Sessions) welcome(p *Peer, stamp uint64) {
	p.Stamp, p.Welcome = stamp, true
	s.Hears(p)
	s.Enqueue(p)
}

// Renew begins a session with a peer that has forgotten the one before, or is another
// life: the numbers of both sides begin anew. The token of a slot never changes, so that both
// sides mean the same session when their greetings cross.
func (s *Sessions) Renew(p *Peer, epoch, token uint64, limits wire.Limits) {
	s.Stats.Sessions++
	s.hooks.End(p, epoch, &limits)
	p.Epoch, p.Remote, p.Cookie, p.Limits = epoch, token, 0, limits
	p.Theirs = wire.VTag(epoch, token)
	s.hooks.Begin(p)
	s.Establish(p)
}

// Establish goes on in the session with a peer.
func (s *Sessions) Establish(p *Peer) {
	p.Ours = wire.VTag(p.Mine, p.Local)
	p.State = Established
	s.hooks.Establish(p)
	s.Enqueue(p)
}

// Challenged greets again, with the cookie.
func (s *Sessions) Challenged(p *Peer, c wire.Challenged) {
	if p.State == Established && c.Known > p.Mine { // the peer knows a later life of this endpoint
		s.Greet(p)
		c.Cookie = 0
	}
	if p.State != Greeting {
		return
	}
	if c.Known >= p.Mine { // the wall clock went back since the last life
		p.Mine = c.Known + 1
	}
	if p.Cookie != c.Cookie || c.Known != 0 {
		p.Cookie, p.HelloAt, p.Wanted = c.Cookie, s.Now, true
		s.Enqueue(p)
	}
}

// Welcomed begins or goes on with the session that this side asked for, and reports whether it did.
func (s *Sessions) Welcomed(p *Peer, w *wire.Granted) bool {
	if w.Hello != p.Mine || w.Token == 0 || w.Epoch == 0 {
		return false
	}
	if w.Epoch < p.Epoch {
		s.Stats.OldEpoch++
		s.Reply(Reply{To: p.Addr, Type: wire.Challenge, Token: w.Token, Challenge: wire.Challenged{Known: p.Epoch}})
		return false
	}
	s.Hears(p)
	if p.Epoch == w.Epoch && p.Remote == w.Token {
		s.Establish(p)
	} else {
		s.Renew(p, w.Epoch, w.Token, w.Limits)
	}
	return true
}

// Grant makes a packet the Welcome of a peer.
func (s *Sessions) Grant(p *Peer, k *wire.Packet) {
	p.Welcome = false
	k.Type, k.Welcome = wire.Welcome, wire.Granted{Epoch: p.Mine, Token: p.Local, Hello: p.Epoch, Limits: s.limits()}
}
