package offload

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// rxFlow is the message flow that comes from a peer: which messages were taken or
// refused, to detect duplicates and for responses.
type rxFlow struct {
	service     uint8
	due         bool // a response is owed
	pending     uint8
	base, floor uint32
	seen        wire.Mask // from base on
	refused     wire.Mask // from floor on: kept until the sender knows
	assemblies  *assembly
}

// assembly is a message that has not come completely, or one that waits for the messages
// before it.
type assembly struct {
	next       *assembly
	seq        uint32
	count, got uint32
	total      uint32
	bytes      []byte
	has        []uint64 // the packets that came
	fragment   uint16
	now        bool // its sender waits
}

// onPart handles a packet of a message.
func (m *Machine) onPart(p *peer, k *wire.Packet) {
	t := &k.Part
	m.enter(p)
	m.expect(p, max(p.coming, 1)-1)
	p.arrived++
	if t.Seq-t.Floor >= wire.Window {
		m.Stats.Bogus++
		return
	}
	if k.RespondNow || p.arrived-p.told >= max(1, uint32(p.granted)/4) { // its sender waits for credit, or will
		p.answer = true
	}
	m.take(p, t, k)
	if p.answer {
		m.enqueue(p)
	} else if p.answerAt == 0 {
		p.answerAt = m.now + m.cfg.AckDelay
		m.wake(p, p.answerAt)
	}
}

func (m *Machine) take(p *peer, t *wire.Part, k *wire.Packet) {
	f := p.rx[t.Service]
	if f == nil {
		f = &rxFlow{service: t.Service, base: t.Floor, floor: t.Floor}
		p.rx[t.Service] = f
	}
	m.advanceFloor(p, f, t.Floor)
	if int32(t.Seq-f.base) < 0 || f.seen.Has(t.Seq) { // the sender may not know
		m.Stats.Duplicates++
		m.respond(p, f, true)
		return
	}
	switch v := m.accept(p, f, t, k); v {
	case incomplete:
	case bogus:
		m.Stats.Bogus++
	default:
		m.decide(p, f, t.Seq, v == taken, k.RespondNow)
	}
}

// What becomes of a message.
const (
	taken = iota
	refused
	incomplete // it is not all there, or not its turn
	bogus
)

// decide records that a message was taken or refused, for the response to its sender.
func (m *Machine) decide(p *peer, f *rxFlow, seq uint32, taken, now bool) {
	f.seen.Set(seq)
	if taken {
		m.Stats.Delivered++
	} else {
		f.refused.Set(seq)
		m.Stats.Refused++
		now = true
	}
	m.advanceBase(p, f)
	m.respond(p, f, now)
}

// advanceBase moves the base past the messages that were taken or refused without a gap.
func (m *Machine) advanceBase(p *peer, f *rxFlow) {
	for {
		for f.seen.Has(f.base) {
			f.seen.Drop(f.base)
			f.base++
		}
		if f.service != engine.Ordered {
			return
		}
		a := f.assembly(f.base)
		if a == nil || a.got < a.count {
			return
		}
		now := a.now
		m.complete(p, f, a)
		m.Stats.Delivered++
		f.base++
		m.respond(p, f, now)
	}
}

// advanceFloor moves the floor past the messages that the sender has settled: none of them comes
// again. The ones that were neither taken nor refused were given up.
func (m *Machine) advanceFloor(p *peer, f *rxFlow, floor uint32) {
	n := floor - f.floor
	if int32(n) <= 0 {
		return
	}
	for s := f.floor; s != f.floor+min(n, wire.Window); s++ {
		f.refused.Drop(s)
	}
	f.floor = floor
	if n := floor - f.base; int32(n) > 0 {
		for s := f.base; s != f.base+min(n, wire.Window); s++ {
			f.seen.Drop(s)
		}
		for a := f.assemblies; a != nil; {
			next := a.next
			if int32(a.seq-floor) < 0 {
				m.remove(f, a)
			}
			a = next
		}
		f.base = floor
	}
	m.advanceBase(p, f)
}

// accept handles a packet of a message that is neither taken nor refused, and returns the state
// of the message.
func (m *Machine) accept(p *peer, f *rxFlow, t *wire.Part, k *wire.Packet) int {
	a := f.assembly(t.Seq)
	if t.Cancel {
		if a != nil {
			m.remove(f, a)
		}
		return refused
	}
	count := wire.Count(t.Total, t.Fragment)
	switch early := f.service == engine.Ordered && t.Seq != f.base; {
	case a != nil && (a.total != t.Total || a.fragment != t.Fragment):
		return bogus
	case a != nil:
	case uint64(t.Total) > uint64(m.cfg.MaxMessage):
		return refused
	case count == 1 && !early:
		return m.hand(p, t, k.Bytes)
	case count > 1 && t.Fragment < leastFragment:
		return bogus
	default:
		room := m.cfg.Host.Room(int(t.Total))
		if room == nil {
			return refused
		}
		a = m.assemble(f)
		a.seq, a.count, a.total, a.fragment, a.bytes = t.Seq, count, t.Total, t.Fragment, room[:t.Total]
		for len(a.has) < int(count+63)/64 {
			a.has = append(a.has, 0)
		}
		m.wake(p, m.now+2*m.cfg.PeerTimeout)
	}
	if a.has[t.Index/64]>>(t.Index%64)&1 != 0 {
		m.Stats.Duplicates++
		return incomplete
	}
	a.has[t.Index/64] |= 1 << (t.Index % 64)
	a.got++
	a.now = a.now || k.RespondNow
	copy(a.bytes[t.Offset():], k.Bytes)
	if a.got < a.count || f.service == engine.Ordered && t.Seq != f.base {
		return incomplete
	}
	p.answer = p.answer || a.now
	m.complete(p, f, a)
	return taken
}

// leastFragment is the least length of the pieces of a message. It bounds the memory for its
// packets besides its bytes.
const leastFragment = 64

// hand delivers a message of one packet as it came.
func (m *Machine) hand(p *peer, t *wire.Part, bytes []byte) int {
	m.delivery = engine.Delivery{From: p.addr, Service: t.Service, Bytes: bytes}
	if !m.cfg.Host.Deliver(&m.delivery, false) {
		return refused
	}
	return taken
}

// complete delivers a message that was assembled.
func (m *Machine) complete(p *peer, f *rxFlow, a *assembly) {
	m.delivery = engine.Delivery{From: p.addr, Service: f.service, Bytes: a.bytes}
	a.bytes = nil
	m.remove(f, a)
	m.cfg.Host.Deliver(&m.delivery, true)
}

func (m *Machine) assemble(f *rxFlow) *assembly {
	a := m.assemblies
	if a == nil {
		a = new(assembly)
	} else {
		m.assemblies = a.next
	}
	*a = assembly{next: f.assemblies, has: a.has[:0]}
	f.assemblies = a
	return a
}

func (f *rxFlow) assembly(seq uint32) *assembly {
	for a := f.assemblies; a != nil; a = a.next {
		if a.seq == seq {
			return a
		}
	}
	return nil
}

// remove takes a message out of the flow, and gives its memory back.
func (m *Machine) remove(f *rxFlow, a *assembly) {
	for at := &f.assemblies; *at != nil; at = &(*at).next {
		if *at == a {
			*at = a.next
			break
		}
	}
	if a.bytes != nil {
		m.cfg.Host.Drop(a.bytes)
		a.bytes = nil
	}
	a.next, m.assemblies = m.assemblies, a
}

// reap gives up messages of senders that fell silent, and returns when to look again.
// Their packets are not sent again, so a sender that is not silent after all gets a refusal.
func (m *Machine) reap(p *peer, f *rxFlow) time.Duration {
	if at := p.heard.At + 2*m.cfg.PeerTimeout; m.now < at {
		return at
	}
	for f.assemblies != nil {
		seq := f.assemblies.seq
		m.remove(f, f.assemblies)
		m.decide(p, f, seq, false, true)
	}
	return never
}

// dropReceived ends the flows that come from a peer.
func (m *Machine) dropReceived(p *peer) {
	for i, f := range p.rx {
		if f == nil {
			continue
		}
		for f.assemblies != nil {
			m.remove(f, f.assemblies)
		}
		p.rx[i] = nil
	}
	p.answer, p.answerAt = false, 0
}

// enough is the largest number of messages that a response waits for.
const enough = 16

// respond has the results of messages sent to a flow's sender: at once, with the next packet
// that goes there, or a little later.
func (m *Machine) respond(p *peer, f *rxFlow, now bool) {
	f.due = true
	if f.pending++; now || f.pending >= enough {
		p.answer = true
		m.enqueue(p)
	}
}

// due returns a flow that a response is owed for, or nil.
func (p *peer) due() *rxFlow {
	for _, f := range p.rx {
		if f != nil && f.due {
			return f
		}
	}
	return nil
}

// attach adds credit to a packet that carries so many bytes, and a response if one is
// owed and there is room.
func (m *Machine) attach(p *peer, k *wire.Packet, c *packet, bytes int) {
	k.HasCredit, c.credit = true, true
	k.Credit = wire.Credit{Taken: p.arrived, Grant: m.share(p)}
	p.told = p.arrived
	p.alone = false
	if f := p.due(); f != nil {
		r := &k.Response
		*r = wire.Response{Service: f.service, Pressure: m.cfg.Host.Pressure(), Base: f.base, Floor: f.floor}
		r.NSeen = f.seen.Words(f.base, &r.Seen)
		r.NRefused = f.refused.Words(f.floor, &r.Refused)
		if bytes == 0 || wire.HeaderLen+wire.CreditLen+wire.PartLen+r.Len()+bytes <= int(p.fragment)+wire.Overhead {
			k.HasResponse, c.answers = true, f.service+1
			f.due, f.pending = false, 0
		} else {
			p.alone = p.answer
		}
	}
	if p.answer = p.due() != nil && p.answer; !p.answer && p.due() == nil {
		p.answerAt = 0
	}
}
