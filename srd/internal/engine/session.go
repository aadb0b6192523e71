package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
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
	s := e.ByToken(k.Token)
	switch {
	case s == nil:
		e.Stats.WrongToken++
		if k.Type == wire.Flow {
			to := wire.Addr{GID: from.GID, QPN: from.QPN, QKey: e.cfg.Addr.QKey}
			e.Reply(session.Reply{To: to, Type: wire.Reset, Slot: k.Slot, Reset: k.Token})
		}
		return
	case s.Addr.GID != from.GID:
		e.Stats.WrongSource++
		return
	}
	p := e.peers[s.Slot]
	switch k.Type {
	case wire.Challenge:
		e.Challenged(&p.Peer, k.Challenge)
	case wire.Welcome:
		e.onWelcome(p, k)
	case wire.Flow:
		if p.Remote == 0 { // its Welcome was lost, and no message here waits for it
			p.Wanted = true
			e.Greet(&p.Peer)
			return
		}
		if k.VTag != p.Theirs {
			e.Stats.OldEpoch++
			return
		}
		e.Hears(&p.Peer)
		p.welcomed = false
		e.onFlow(p, k)
	case wire.Probe:
		e.Hears(&p.Peer)
		p.echo, p.echoPath, p.echoStamp = true, k.SubFlow, k.Stamp
		e.Enqueue(&p.Peer)
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

// helloTimeout returns how long a greeting waits for its reply: longer after each path had one.
// It varies by half: peers that greet at once, and find a queue full, would otherwise come back
// at once, and find it full again.
func (e *Engine) helloTimeout(p *peer) time.Duration {
	t := min(4*e.cfg.MinTimeout<<min(int(p.Hellos)/e.cfg.Paths, 6), e.cfg.PeerTimeout/8)
	return t/2 + time.Duration(e.Rng.Int64N(int64(t)))
}

// onHello handles a greeting. A message may have come with it.
func (e *Engine) onHello(from Source, k *wire.Packet, b []byte) {
	if from.GID != k.Greeting.From.GID {
		e.Stats.WrongSource++
		return
	}
	s, begun := e.Greeted(k, b)
	if s == nil {
		return
	}
	p := e.peers[s.Slot]
	if begun {
		e.Enter(&p.Peer)
	} else if p.welcomed && e.cfg.Silent != nil {
		e.cfg.Silent(p.Addr)
	}
	if begun && k.HasPart {
		e.onPart(p, k)
	} else {
		e.greets(p)
	}
}

// end ends the messages that were sent in a session that is over. They may have been received, and
// end as unresponsive, however long ago they were sent, since clocks stop with their hosts.
//
// A message that went with a greeting may have reached a predecessor, or the peer, if that asked for
// a cookie when the greeting came again; but not if the peer has forgotten nothing since. Clocks may
// differ.
func (e *Engine) end(s *session.Peer, epoch uint64, limits *wire.Limits) {
	p := e.peers[s.Slot]
	if p.Epoch != 0 || p.net != nil && p.net.carried > 0 && (epoch >= p.Own || p.Cookie != 0) &&
		e.Boot()-p.net.carried >= time.Duration(limits.Complete)*time.Millisecond {
		e.fail(p, false)
	}
	e.dropReceived(p)
}

// begin has the windows of both sides begin anew.
func (e *Engine) begin(s *session.Peer) {
	p := e.peers[s.Slot]
	p.grant = uint16(e.cfg.First)
	e.endTurn(p)
	if p.net != nil {
		p.net.heard, p.net.asking = 0, asking{}
	}
	e.limit(p)
}

func (e *Engine) establish(s *session.Peer) { e.rearm(e.peers[s.Slot]) }

// onWelcome begins or goes on with the session that this side asked for.
func (e *Engine) onWelcome(p *peer, k *wire.Packet) {
	if p.State != session.Greeting || !e.Welcomed(&p.Peer, &k.Welcome) {
		return
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
	if p.State != session.Established || p.Remote != k.Reset || p.Addr.GID != from.GID {
		e.Stats.Bogus++
		return
	}
	e.Greet(&p.Peer)
}
