package offload

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// peer is the state that an endpoint keeps of another one.
type peer struct {
	session.Peer
	life uint32 // of the session, among all

	answerAt time.Duration // when a response is due, or 0
	retryAt  time.Duration // nothing is sent until then, or 0
	againAt  time.Duration // when to send again what waits for memory, or is undecided for long

	posted  uint32        // packets with a part, but for those that did not arrive
	taken   uint32        // of them, as the peer says
	arrived uint32        // packets with a part that it sent
	told    uint32        // of them, as it was told
	grant   uint16        // packets that this end may have under way
	granted uint16        // what it was told last that it may have
	coming  uint16        // packets that may come of those, while it is one that sends
	less    time.Duration // since when it has been told less than may come, or 0

	checks uint8 // of the session, since the peer said something new
	tries  uint8 // rounds in which nothing arrived
	turn   uint8 // the service of the flow that sent last
	answer bool  // a response is owed now
	alone  bool  // and has room in no packet with a part
	held   bool  // its Welcome has not landed: what overtook that would be lost

	tx [wire.Services]*txFlow
	rx [wire.Services]*rxFlow
}

// underWay returns how many packets with a part the peer has not taken.
func (p *peer) underWay() int { return max(0, int(int32(p.posted-p.taken))) }

// find returns the peer with an address, and creates it if there is none.
func (m *Machine) find(a wire.Addr) *peer {
	if s := m.Find(a); s != nil {
		return m.peers[s.Slot]
	}
	return nil
}

func (m *Machine) makePeer(s session.Peer) *session.Peer {
	if int(s.Slot) == len(m.peers) {
		m.peers = append(m.peers, new(peer))
	}
	s.Fragment = uint16(m.fragment)
	p := m.peers[s.Slot]
	*p = peer{Peer: s, turn: uint8(m.Rng.Uint32())}
	m.restart(p)
	return &p.Peer
}

// restart counts the packets of a peer anew.
func (m *Machine) restart(p *peer) {
	m.lives++
	p.life = max(1, m.lives)
	p.posted, p.taken, p.arrived, p.told = 0, 0, 0, 0
	p.tries, p.retryAt, p.held = 0, 0, false
	p.grant, p.granted = uint16(m.cfg.First), uint16(m.cfg.First)
	m.left(p)
}

func (m *Machine) peerUnsettled(s *session.Peer) bool { return m.peers[s.Slot].unsettled() }

// forget frees what is kept of a peer.
func (m *Machine) forget(s *session.Peer) {
	p := m.peers[s.Slot]
	m.dropReceived(p)
	m.left(p)
	p.life = 0
}

// tick does what is due for a peer, and returns when to look again.
func (m *Machine) tick(s *session.Peer) time.Duration {
	p := m.peers[s.Slot]
	next := never
	at := func(t time.Duration) { next = min(next, t) }
	if p.retryAt != 0 {
		if m.Now >= p.retryAt {
			p.retryAt = 0
			m.Enqueue(&p.Peer)
		} else {
			at(p.retryAt)
		}
	}
	if p.answerAt != 0 {
		if m.Now >= p.answerAt {
			p.answerAt, p.answer = 0, true
			m.Enqueue(&p.Peer)
		} else {
			at(p.answerAt)
		}
	}
	if p.unsettled() {
		if m.Now >= p.againAt {
			p.againAt = m.Now + min(engine.AskAgain, m.cfg.PeerTimeout/32)
			for _, f := range p.tx {
				if f != nil {
					m.holdBack(f, nil)
				}
			}
			m.Enqueue(&p.Peer)
		}
		at(p.againAt)
		at(m.watch(p))
	}
	for _, f := range p.rx {
		if f != nil && f.assemblies != nil {
			at(m.reap(p, f))
		}
	}
	return next
}

// watch checks a peer with unsettled messages: it greets the peer while it is silent, gives it up
// when it was silent for PeerTimeout, and returns when to look again.
func (m *Machine) watch(p *peer) time.Duration {
	last := max(p.Heard.At, p.Progress)
	if m.Now-last >= m.cfg.PeerTimeout {
		m.fail(p)
		return never
	}
	if check := m.cfg.PeerTimeout / 16; p.State == session.Established {
		if m.Now-last < check {
			return last + check
		}
		if p.tries > 0 && p.tries < refuseTries { // its device lives, and has no buffers
			return m.Now + check
		}
		m.Stats.Probes++
		p.checks = min(p.checks+1, 200)
		m.Greet(&p.Peer)
		return m.Now + check
	}
	return last + m.cfg.PeerTimeout
}
