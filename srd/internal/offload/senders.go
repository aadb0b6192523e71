package offload

import "time"

// senderAge is how long a peer counts as a sender after it sent.
const senderAge = 50 * time.Millisecond

// enter counts a peer that greets or sends among those that send.
func (m *Machine) enter(p *peer) {
	if !p.sender {
		p.sender = true
		m.senders = append(m.senders, p.Slot)
		m.expect(p, p.granted)
	}
}

// expect sets how many packets may come from a peer that sends.
func (m *Machine) expect(p *peer, n uint16) {
	m.coming += int(n) - int(p.coming)
	p.coming = n
}

func (m *Machine) left(p *peer) {
	if !p.sender {
		return
	}
	p.sender, p.less = false, 0
	m.expect(p, 0)
	last := len(m.senders) - 1
	for i, slot := range m.senders {
		if slot == p.Slot {
			m.senders[i] = m.senders[last]
			m.senders = m.senders[:last]
			return
		}
	}
}

// share returns how many packets a peer may have under way towards this endpoint: its part of
// the budget, as far as others may not use that still. A peer that does not send has what it
// begins with. Each call checks two of the senders, to find the ones that stopped.
func (m *Machine) share(p *peer) uint16 {
	for range min(2, len(m.senders)) {
		m.look = (m.look + 1) % len(m.senders)
		if q := m.peers[m.senders[m.look]]; m.Now-q.Heard.At > senderAge {
			m.left(q)
			if len(m.senders) == 0 {
				break
			}
		}
	}
	p.granted = uint16(m.cfg.First)
	if p.sender {
		free := m.cfg.Budget - m.coming
		p.granted = uint16(min(max(min(m.cfg.Budget/len(m.senders), int(p.coming)+free), 1), 1<<15))
		switch {
		case p.granted >= p.coming || p.less > 0 && m.Now-p.less > senderAge:
			p.less = 0
			m.expect(p, p.granted)
		case p.less == 0: // what it was told before may be under way
			p.less = m.Now
		}
	}
	return p.granted
}
