package offload

import "github.com/goverbs/goverbs/srd/internal/session"

// enter counts a peer that greets or sends among those that send.
func (m *Machine) enter(p *peer) {
	if m.Enter(&p.Peer) {
		m.expect(p, p.granted)
	}
}

// expect sets how many packets may come from a peer that sends.
func (m *Machine) expect(p *peer, n uint16) {
	m.coming += int(n) - int(p.coming)
	p.coming = n
}

func (m *Machine) left(p *peer) {
	if m.Leave(&p.Peer) {
		p.less = 0
		m.expect(p, 0)
	}
}

// share returns how many packets a peer may have under way towards this endpoint: its part of
// the budget, as far as others may not use that still. A peer that does not send has what it
// begins with. Each call checks two of the senders, to find the ones that stopped.
func (m *Machine) share(p *peer) uint16 {
	for range 2 {
		if q := m.Stopped(); q != nil {
			m.left(m.peers[q.Slot])
		}
	}
	p.granted = uint16(m.cfg.First)
	if p.Sender {
		free := m.cfg.Budget - m.coming
		p.granted = uint16(min(max(min(m.cfg.Budget/len(m.Senders), int(p.coming)+free), 1), 1<<15))
		switch {
		case p.granted >= p.coming || p.less > 0 && m.Now-p.less > session.SenderAge:
			p.less = 0
			m.expect(p, p.granted)
		case p.less == 0: // what it was told before may be under way
			p.less = m.Now
		}
	}
	return p.granted
}
