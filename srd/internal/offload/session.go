package offload

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
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
	s := m.ByToken(k.Token)
	switch {
	case s == nil:
		// A reply is impossible: the packet does not say where it is from. Its
		// sender greets when it has heard nothing for a while.
		m.Stats.WrongToken++
		return
	case s.Addr.QPN != qpn:
		m.Stats.WrongSource++
		return
	}
	p := m.peers[s.Slot]
	switch k.Type {
	case wire.Challenge:
		m.onChallenge(p, k)
	case wire.Welcome:
		m.onWelcome(p, k)
	case wire.Flow:
		switch {
		case p.Remote == 0: // its Welcome did not come yet, and no message here waits for it
			p.Wanted = true
			m.Greet(&p.Peer)
		case k.VTag != p.Theirs:
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
	m.Hears(&p.Peer)
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

// helloTimeout returns how long a greeting waits for its reply: the peer may have had no
// buffer for the greeting, or this side none for the reply.
func (m *Machine) helloTimeout(p *peer) time.Duration {
	return min(4*m.cfg.RetryDelay<<min(int(p.Hellos), 7), m.cfg.PeerTimeout/8)
}

// onHello handles a greeting.
func (m *Machine) onHello(qpn uint32, k *wire.Packet, b []byte) {
	if qpn != k.Greeting.From.QPN || k.HasPart || k.HasResponse || k.HasCredit {
		m.Stats.WrongSource++
		return
	}
	s, begun := m.Greeted(k, b)
	if s == nil {
		return
	}
	p := m.peers[s.Slot]
	if begun {
		p.held = true
		m.enter(p)
	} else {
		m.repeat(p)
	}
}

// repeat sends credit and all responses again to a peer that checks its session: the last ones
// may not have arrived.
func (m *Machine) repeat(p *peer) {
	p.answer = true
	for _, f := range p.rx {
		if f != nil {
			f.due = true
		}
	}
}

// end ends the messages that were sent in a session that is over. They may have been received, and
// end as unresponsive.
func (m *Machine) end(s *session.Peer, _ uint64, _ *wire.Limits) {
	p := m.peers[s.Slot]
	m.part(p, false)
	m.dropReceived(p)
}

// begin has the numbers of both sides begin anew.
func (m *Machine) begin(s *session.Peer) {
	p := m.peers[s.Slot]
	m.restart(p)
	m.limit(p)
}

func (m *Machine) establish(s *session.Peer) {
	p := m.peers[s.Slot]
	p.Progress = m.Now
	if p.unsettled() {
		m.Wake(s, m.Now+m.cfg.PeerTimeout/4)
	}
}

// onChallenge greets again. The peer took nothing from a life that is older than the one it
// knows.
func (m *Machine) onChallenge(p *peer, k *wire.Packet) {
	known := k.Challenge.Known
	if known > p.Mine && p.State == session.Established || known >= p.Mine && p.State == session.Greeting {
		m.part(p, known > p.Mine)
		m.restart(p)
	}
	m.Challenged(&p.Peer, k.Challenge)
}

// onWelcome begins or goes on with the session that this side asked for. A late Welcome, when no
// message waits for it, counts too: the peer relies on it.
func (m *Machine) onWelcome(p *peer, k *wire.Packet) {
	if p.State != session.Established && m.Welcomed(&p.Peer, &k.Welcome) && p.checks >= 2 {
		m.resend(p)
	}
}
