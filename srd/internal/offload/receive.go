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
	lacks       bool // there was no memory for packets of messages, which have to come again
	pending     uint8
	base, floor uint32
	seen        wire.Mask // from base on
	refused     wire.Mask // from floor on: kept until the sender knows; what is not seen has to come again
	assemblies  *engine.Assembly
	wait        *engine.Wait // for memory
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
		m.Enqueue(&p.Peer)
	} else if p.answerAt == 0 {
		p.answerAt = m.Now + m.cfg.AckDelay
		m.Wake(&p.Peer, p.answerAt)
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
	v := m.accept(p, f, t, k)
	if v != waits {
		m.waiting.Remove(&f.wait, t.Seq)
	}
	switch v {
	case incomplete, waits:
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
	waits      // for memory: it has to come again
	bogus
)

// decide records that a message was taken or refused, for the response to its sender.
func (m *Machine) decide(p *peer, f *rxFlow, seq uint32, taken, now bool) {
	f.seen.Set(seq)
	if taken {
		f.refused.Drop(seq)
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
		a := f.assemblies.Find(f.base)
		if a == nil || !a.Whole() {
			return
		}
		now := a.Now
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
			next := a.Next
			if int32(a.Number-floor) < 0 {
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
	m.offer()
	a := f.assemblies.Find(t.Seq)
	if t.Cancel {
		if a != nil {
			m.remove(f, a)
		}
		return refused
	}
	count := wire.Count(t.Total, t.Fragment)
	switch early := f.service == engine.Ordered && t.Seq != f.base; {
	case a != nil && (a.Total != t.Total || a.Fragment != t.Fragment):
		return bogus
	case a != nil:
	case uint64(t.Total) > uint64(m.cfg.MaxMessage):
		return refused
	case count == 1 && !early:
		return m.hand(p, f, t, k.Bytes)
	case count > 1 && t.Fragment < minFragment:
		return bogus
	default:
		if len(m.waiting) > 0 && !f.blocked(t.Seq) {
			return m.lacks(p, f, t)
		}
		room := m.cfg.Host.Room(int(t.Total))
		for room == nil {
			if !m.displace(p, f, t.Seq) {
				return m.lacks(p, f, t)
			}
			room = m.cfg.Host.Room(int(t.Total))
		}
		a = m.reserve(p, f, t.Seq, t.Total, t.Fragment, room)
	}
	if a.Has[t.Index/64]>>(t.Index%64)&1 != 0 {
		m.Stats.Duplicates++
		return incomplete
	}
	a.Has[t.Index/64] |= 1 << (t.Index % 64)
	a.Got++
	a.Now = a.Now || k.RespondNow
	copy(a.Bytes[t.Offset():], k.Bytes)
	if !a.Whole() {
		return incomplete
	}
	f.refused.Drop(t.Seq)
	if f.service == engine.Ordered && t.Seq != f.base {
		return incomplete
	}
	p.answer = p.answer || a.Now
	m.complete(p, f, a)
	return taken
}

// minFragment is the least length of the pieces of a message. It bounds the memory for its
// packets besides its bytes.
const minFragment = 64

// hand delivers a message of one packet as it came.
func (m *Machine) hand(p *peer, f *rxFlow, t *wire.Part, bytes []byte) int {
	m.delivery = engine.Delivery{From: p.Addr, Service: t.Service, Bytes: bytes}
	if len(m.waiting) > 0 && !f.blocked(t.Seq) {
		return m.lacks(p, f, t)
	}
	for !m.cfg.Host.Deliver(&m.delivery, false) {
		if !m.displace(p, f, t.Seq) {
			return m.lacks(p, f, t)
		}
	}
	return taken
}

// lacks decides what becomes of a message for which there is no memory: it has to come again if
// there may soon be some.
func (m *Machine) lacks(p *peer, f *rxFlow, t *wire.Part) int {
	if !m.cfg.Host.Soon(int(t.Total)) {
		return refused
	}
	m.Stats.Beyond++
	if f.wait != nil || !f.lacks { // else the flow is told first what may come again
		m.waiting.Add(&f.wait, p.Slot, t.Seq, t, m.Now)
	}
	m.again(p, f, t.Seq)
	return waits
}

// again has a message sent again: at once, or when there is memory for the one of the flow that waits.
func (m *Machine) again(p *peer, f *rxFlow, seq uint32) {
	f.lacks = true
	f.refused.Set(seq)
	m.respond(p, f, false)
}

// blocked reports whether a message is the next one of an ordered flow, and others are behind it
// that have memory.
func (f *rxFlow) blocked(seq uint32) bool {
	return f.service == engine.Ordered && seq == f.base && f.assemblies != nil
}

// displace takes the memory of a message behind a blocked one, and reports whether there was one.
func (m *Machine) displace(p *peer, f *rxFlow, seq uint32) bool {
	if !f.blocked(seq) {
		return false
	}
	m.again(p, f, f.assemblies.Number)
	m.remove(f, f.assemblies)
	return true
}

// offer gives memory to the messages that wait for it, and has them sent again.
func (m *Machine) offer() {
	for {
		w, room := m.waiting.Next(m.cfg.Host, m.Now)
		if w == nil {
			return
		}
		p := m.peers[w.Peer]
		f := p.rx[w.Service]
		f.wait = nil
		switch {
		case room == nil:
		case int32(w.Number-f.base) < 0: // its sender gave it up
			m.cfg.Host.Drop(room)
		default:
			m.reserve(p, f, w.Number, w.Total, w.Fragment, room)
		}
		m.respond(p, f, true)
	}
}

// reserve gives a message its memory.
func (m *Machine) reserve(p *peer, f *rxFlow, seq, total uint32, fragment uint16, room []byte) *engine.Assembly {
	a := m.assemblies.Begin(&f.assemblies, seq, total, fragment, room, m.Now)
	for len(a.Has) < int(a.Count+63)/64 {
		a.Has = append(a.Has, 0)
	}
	m.Wake(&p.Peer, m.Now+2*m.cfg.PeerTimeout)
	return a
}

// complete delivers a message that was assembled.
func (m *Machine) complete(p *peer, f *rxFlow, a *engine.Assembly) {
	m.delivery = engine.Delivery{From: p.Addr, Service: f.service, Bytes: a.Bytes}
	a.Bytes = nil
	m.remove(f, a)
	m.cfg.Host.Deliver(&m.delivery, true)
}

// remove takes a message out of the flow, and gives its memory back.
func (m *Machine) remove(f *rxFlow, a *engine.Assembly) {
	m.assemblies.End(&f.assemblies, a, m.cfg.Host)
}

// reap gives up messages of senders that fell silent, and returns when to look again.
// Their packets are not sent again, so a sender that is not silent after all gets a refusal.
func (m *Machine) reap(p *peer, f *rxFlow) time.Duration {
	if at := p.Heard.At + 2*m.cfg.PeerTimeout; m.Now < at {
		return at
	}
	for f.assemblies != nil {
		seq := f.assemblies.Number
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
		if f.wait != nil {
			m.waiting.Remove(&f.wait, f.wait.Number)
		}
		p.rx[i] = nil
	}
	p.answer, p.alone, p.answerAt = false, false, 0
}

// enough is the largest number of messages that a response waits for.
const enough = 16

// respond has the results of messages sent to a flow's sender: at once, with the next packet
// that goes there, or a little later.
func (m *Machine) respond(p *peer, f *rxFlow, now bool) {
	f.due = true
	if f.pending++; now || f.pending >= enough {
		p.answer = true
		m.Enqueue(&p.Peer)
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

// called records that a response went which says what has to come again; at once, if none waits.
func (f *rxFlow) called() {
	if !f.lacks || f.wait != nil {
		return
	}
	f.lacks = false
	for s := f.base; s != f.floor+wire.Window; s++ {
		if !f.seen.Has(s) {
			f.refused.Drop(s)
		}
	}
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
		*r = wire.Response{Service: f.service, Base: f.base, Floor: f.floor}
		if f.wait != nil {
			r.Pressure = engine.NoMemory
		}
		r.NSeen = f.seen.Words(f.base, &r.Seen)
		r.NRefused = f.refused.Words(f.floor, &r.Refused)
		if bytes == 0 || wire.HeaderLen+wire.CreditLen+wire.PartLen+r.Len()+bytes <= int(p.Fragment)+wire.Overhead {
			k.HasResponse, c.answers = true, f.service+1
			f.due, f.pending = false, 0
			f.called()
		} else {
			p.alone = p.answer
		}
	}
	if p.due() == nil {
		p.answer, p.answerAt = false, 0
	}
}
