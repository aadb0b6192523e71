package offload

import (
	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Next makes the packet to be sent next, in a slot that is free, and returns false if
// there is none. b has room for wire.MaxHeaders. The message's bytes are read before the
// next call of the machine.
func (m *Machine) Next(slot int, b []byte, o *engine.Out) bool {
	m.offer()
	k, c := &m.out, &m.packets[slot]
	if m.Replies() {
		to, n := m.NextReply(b)
		*o, *c = engine.Out{To: to, Headers: n, Unauthenticated: true}, packet{}
		return true
	}
	for s := m.Ready(); s != nil; s = m.Ready() {
		p := m.peers[s.Slot]
		*o = engine.Out{To: p.Addr}
		*c = packet{peer: p.Slot, life: p.life, message: none}
		k.HasPart, k.HasResponse, k.HasCredit, k.RespondNow = false, false, false, false
		k.Token, k.VTag, k.Stamp = p.Remote, p.Ours, m.Stamp()
		if !m.make(p, k, o, c) {
			m.Dequeue()
			continue
		}
		o.Headers = k.Encode(b)
		m.Stats.Sent++
		m.Turn(s, false)
		return true
	}
	return false
}

// make makes the next packet to a peer, and reports whether there is one.
func (m *Machine) make(p *peer, k *wire.Packet, o *engine.Out, c *packet) bool {
	if p.retryAt != 0 {
		return false
	}
	if p.State == session.Greeting && m.Now >= p.HelloAt {
		if p.unsettled() || p.Wanted {
			p.Wanted = false
			m.Hello(&p.Peer, k)
			m.GreetAgain(&p.Peer, m.helloTimeout(p))
			o.Seal = m.cfg.Key != nil
			return true
		}
		p.State = session.Known // no message waits for it any more
		if p.Remote != 0 {
			m.Establish(&p.Peer)
		}
	}
	switch {
	case p.Welcome:
		c.welcome = true
		m.Grant(&p.Peer, k)
	case p.held:
		return false
	case p.State == session.Established && !p.alone && m.makePart(p, k, o, c):
		k.Type = wire.Flow
		m.attach(p, k, c, o.Length)
	case p.answer:
		k.Type = wire.Flow
		m.attach(p, k, c, 0)
		m.Stats.Responses++
	default:
		return false
	}
	return true
}

// makePart adds the next packet of a flow: one that is sent again before new ones, and
// one flow after the other.
func (m *Machine) makePart(p *peer, k *wire.Packet, o *engine.Out, c *packet) bool {
	room := int(p.grant) - p.underWay()
	if room <= 0 {
		return false
	}
	for range wire.Services {
		p.turn = (p.turn + 1) % wire.Services
		f := p.tx[p.turn]
		if f == nil {
			continue
		}
		if !m.makeAgain(f, k, c) && !m.makeNew(f, k, c) {
			continue
		}
		p.posted++
		c.service = f.service
		k.HasPart = true
		k.Part.Service, k.Part.Floor = f.service, f.una
		if c.message != none {
			o.Tag, o.Offset, o.Length = m.messages[c.message].tag, k.Part.Offset(), k.Part.Length()
		}
		k.RespondNow = k.RespondNow || room == 1
		return true
	}
	return false
}

// makeAgain makes a packet that is sent again, or one that cancels a message, and reports whether
// there is one.
func (m *Machine) makeAgain(f *txFlow, k *wire.Packet, c *packet) bool {
	for len(f.again) > 0 {
		x := f.again[0]
		f.again = f.again[:copy(f.again, f.again[1:])]
		if x.cancel {
			if x.seq-f.una >= f.nxt-f.una || f.open[x.seq%wire.Window].state == settled {
				continue
			}
			c.cancel, c.seq = true, x.seq
			k.Part = wire.Part{Cancel: true, Seq: x.seq, Fragment: 1}
			return true
		}
		if g := m.live(x.message, x.gen); g != nil && g.reason == 0 {
			c.message = x.message
			m.put(g, x.index, k, c)
			return true
		}
	}
	return false
}

// makeNew makes the next packet of a message, which may be its first, and reports whether there
// is one.
func (m *Machine) makeNew(f *txFlow, k *wire.Packet, c *packet) bool {
	if f.Head == none {
		return false
	}
	g := &m.messages[f.Head]
	c.message = f.Head
	if !g.numbered {
		if f.nxt-f.una >= wire.Window || f.held {
			return false
		}
		g.numbered, g.seq = true, f.nxt
		f.nxt++
		if f.open == nil {
			f.open = m.window()
		}
		e := &f.open[g.seq%wire.Window]
		e.message, e.state = f.Head, pending
	}
	m.put(g, g.sent, k, c)
	if g.sent++; g.sent == g.count {
		g.sentAt = m.Now
		m.links.Pop(&f.Queue)
		k.RespondNow = g.now && f.Head == none
	}
	return true
}

func (m *Machine) window() *txWindow {
	if n := len(m.windows); n > 0 {
		w := m.windows[n-1]
		m.windows = m.windows[:n-1]
		return w
	}
	return new(txWindow)
}

// put writes a packet of a message.
func (m *Machine) put(g *message, index uint32, k *wire.Packet, c *packet) {
	c.part, c.gen, c.seq, c.index = true, g.gen, g.seq, index
	k.Part = wire.Part{Seq: g.seq, Index: index, Total: g.total, Fragment: g.fragment}
}
