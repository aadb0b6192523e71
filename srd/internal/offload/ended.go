package offload

import (
	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// A peer's messages are refused after refuseTries rounds in which it had no buffer. The peer
// is gone after goneTries rounds in which it had no queue pair: a peer that repairs its queue
// pair has none for a moment. After wordTries rounds no credit or response is sent again until
// the peer greets.
const (
	refuseTries = 7
	goneTries   = 3
	wordTries   = 100
)

// Completed frees the slot of a packet that the device completed, and handles its outcome.
func (m *Machine) Completed(slot int, o Outcome) {
	c := m.packets[slot]
	m.packets[slot] = packet{}
	if c.life == 0 || m.peers[c.peer].life != c.life {
		return
	}
	p := m.peers[c.peer]
	if o == Landed {
		p.tries, p.held = 0, p.held && !c.welcome
		m.Enqueue(&p.Peer)
		return
	}
	m.Stats.Timeouts++
	if p.retryAt == 0 { // failures of one round count once
		p.tries = min(p.tries+1, 200)
		p.retryAt = m.Now + m.cfg.RetryDelay<<min(p.tries-1, 6)
		m.Wake(&p.Peer, p.retryAt)
	}
	if c.part || c.cancel {
		p.posted--
	}
	if o == Silent || o == Gone && p.tries >= goneTries {
		m.fail(p)
		return
	}
	if p.tries < wordTries {
		m.owe(p, &c)
	}
	switch f := p.tx[c.service]; {
	case c.cancel:
		m.cancel(f, c.seq)
	case c.part:
		m.missed(f, &c, o)
	}
}

// owe has the Welcome, credit or response of a packet that did not arrive sent again.
func (m *Machine) owe(p *peer, c *packet) {
	p.Welcome, p.answer = p.Welcome || c.welcome, p.answer || c.credit
	if c.answers > 0 && p.rx[c.answers-1] != nil {
		p.rx[c.answers-1].due = true
	}
}

// resend sends all messages again that the peer does not settle, though it lives and has nothing
// to wait for: a packet did not arrive though the device said so. The receiver recognizes
// duplicates by their number.
func (m *Machine) resend(p *peer) {
	p.posted = p.taken
	for _, f := range p.tx {
		if f == nil {
			continue
		}
		f.again = f.again[:0]
		for s := f.una; s != f.nxt; s++ {
			c := &f.open[s%wire.Window]
			switch g := &m.messages[c.message]; {
			case c.state == settled:
			case c.state == hole || g.reason != 0:
				m.cancel(f, s)
			default:
				m.mislaid++
				g.sentAt = -never
			}
		}
		m.holdBack(f, nil)
	}
	m.Enqueue(&p.Peer)
}

// missed handles a message when a packet of it did not arrive, or may not have arrived.
func (m *Machine) missed(f *txFlow, c *packet, o Outcome) {
	g := m.live(c.message, c.gen)
	if g == nil {
		return
	}
	g.unsure = g.unsure || o == Failed
	why := engine.Status(0)
	switch {
	case g.reason != 0:
		return // it is given up
	case f.service == engine.NoRetransmit:
		why = engine.Retransmit
	case o == NotReady && f.p.tries >= refuseTries:
		why = engine.Refused
	}
	switch {
	case why == 0:
		m.Stats.Retransmitted++
		f.again = append(f.again, piece{seq: c.seq, index: c.index, message: c.message, gen: c.gen})
	case g.unsure:
		m.abort(c.message, why)
	default:
		m.miss(c.message, why)
	}
}

// fail gives up the messages to a peer.
func (m *Machine) fail(p *peer) {
	for _, f := range p.tx {
		if f == nil {
			continue
		}
		m.abandon(f, false)
		for f.Head != none {
			i := f.Head
			m.links.Remove(&f.Queue, i)
			m.finish(i, engine.Unresponsive)
		}
	}
	if p.State == session.Greeting {
		p.State = session.Known
	}
}

// part ends a session on this side. Its messages may have been received, unless again is set,
// which says that the peer took none of them: then they are sent again.
func (m *Machine) part(p *peer, again bool) {
	for _, f := range p.tx {
		if f != nil {
			m.abandon(f, again)
		}
	}
}

// abandon takes all numbers of a flow back: their messages are unresponsive, or are sent
// again from their beginning, before those that follow.
func (m *Machine) abandon(f *txFlow, again bool) {
	for s := f.nxt; s != f.una; {
		s--
		c := &f.open[s%wire.Window]
		if c.state > lacking {
			continue
		}
		i := c.message
		g := &m.messages[i]
		m.links.Remove(&f.Queue, i)
		switch {
		case !again:
			m.finish(i, engine.Unresponsive)
		case g.reason != 0:
			m.finish(i, g.reason)
		default:
			g.numbered, g.unsure, g.sent = false, false, 0
			m.links.PushFront(&f.Queue, i)
		}
	}
	f.una = f.nxt
	m.close(f)
}
