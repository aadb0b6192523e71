package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// rxFlow is the window of a packet flow that comes from a peer: which of its packets
// arrived, to detect duplicates and for responses.
type rxFlow struct {
	service     uint8
	echoPath    uint8
	hasEcho     bool
	now         bool // a response is owed
	base, floor uint32
	seen        arrivals   // from base on
	refused     *wire.Mask // from floor on, kept until the sender knows; nil while nothing was
	assemblies  *Assembly
	wait        *Wait // for memory

	since     time.Duration // of the first packet without a response
	due       time.Duration // of a response, or 0
	echoAt    time.Duration
	echoStamp uint32
	pending   uint16 // packets without a response
}

// Ways in which a packet can end.
const (
	taken = iota
	refusedHere
	dropped // as if it had not arrived
	waits   // for memory: it has to come again
)

// onPart handles a packet of a flow.
func (e *Engine) onPart(p *peer, k *wire.Packet) {
	t := &k.Part
	if t.Seq-t.Floor >= wire.Window {
		e.Stats.Bogus++
		return
	}
	e.Enter(&p.Peer)
	f := p.rx[t.Service]
	if f == nil {
		f = &rxFlow{service: t.Service, base: t.Floor, floor: t.Floor}
		p.rx[t.Service] = f
	}
	e.advanceFloor(p, f, t.Floor)
	gap := e.network(p).gap(k.SubFlow%MaxPaths, k.SubSeq)
	p.net.used = e.Now
	f.hasEcho, f.echoPath, f.echoStamp, f.echoAt = true, k.SubFlow, k.Stamp, e.Now
	now := k.RespondNow || gap
	switch {
	case int32(t.Seq-f.base) < 0, f.seen.has(t.Seq):
		e.Stats.Duplicates++
		now = true
	default:
		result := e.accept(p, f, k)
		switch result {
		case dropped:
			e.sends(p, f, k)
			return
		case waits:
			e.sends(p, f, k)
			e.respond(p, f, false, k.More)
			return
		case refusedHere:
			f.refuse(t.Seq)
			now = true
		}
		e.waiting.Remove(&f.wait, t.Seq-t.Index)
		if t.Seq == f.base {
			f.base++
		} else {
			e.see(&f.seen, t.Seq)
		}
		e.advanceBase(p, f)
	}
	e.sends(p, f, k)
	e.respond(p, f, now, k.More)
}

// gap records the number of a packet in its sub-flow, and reports whether one before it is
// missing. Sub-flows hardly reorder.
func (n *network) gap(path uint8, number uint16) bool {
	gap := n.heard>>path&1 != 0 && int16(number-n.subs[path]) > 1
	n.heard |= 1 << path
	n.subs[path] = number
	return gap
}

func (f *rxFlow) refuse(seq uint32) {
	if f.refused == nil {
		f.refused = new(wire.Mask)
	}
	f.refused.Set(seq)
}

// advanceBase moves the base past the packets that arrived without a gap.
func (e *Engine) advanceBase(p *peer, f *rxFlow) {
	for f.seen.has(f.base) {
		e.unmark(&f.seen, f.base)
		f.base++
	}
	if f.service == Ordered {
		e.release(p, f, false)
	}
}

// advanceFloor moves the floor past the packets that the sender never sends again, and forgets
// which of them were refused.
func (e *Engine) advanceFloor(p *peer, f *rxFlow, floor uint32) {
	if int32(floor-f.floor) <= 0 {
		return
	}
	if f.refused != nil {
		for s, n := f.floor, min(floor-f.floor, wire.Window); n > 0; s, n = s+1, n-1 {
			f.refused.Drop(s)
		}
		if *f.refused == (wire.Mask{}) {
			f.refused = nil
		}
	}
	f.floor = floor
	if int32(floor-f.base) > 0 {
		for s, n := f.base, min(floor-f.base, wire.Window); n > 0; s, n = s+1, n-1 {
			e.unmark(&f.seen, s)
		}
		f.base = floor
	}
	for a := f.assemblies; a != nil; {
		next := a.Next
		// Everything before floor is settled: arrived, or given up.
		if below := floor - a.Number; !a.Whole() && int32(below) > 0 && a.Got < below {
			e.remove(f, a)
		}
		a = next
	}
	e.advanceBase(p, f)
}

// accept handles a packet that is new, and returns how it ended.
func (e *Engine) accept(p *peer, f *rxFlow, k *wire.Packet) int {
	t := &k.Part
	first, count := t.Seq-t.Index, wire.Count(t.Total, t.Fragment)
	if t.Cancel {
		e.discard(f, first)
		return refusedHere
	}
	e.offer()
	a := f.assemblies.Find(first)
	if a == nil {
		if count == 1 && (f.service != Ordered || first == f.base) {
			return e.hand(p, f, t, k.Bytes)
		}
		if f.touched(first, count) { // it was given up, here or there
			return refusedHere
		}
		var result int
		if a, result = e.assemble(p, f, t, first, count); a == nil {
			return result
		}
	}
	if a.Total != t.Total || a.Fragment != t.Fragment {
		e.Stats.Bogus++
		return dropped
	}
	copy(a.Bytes[t.Offset():], k.Bytes)
	a.Got++
	a.Heard = e.Now
	a.Now = a.Now || k.RespondNow && t.Index == count-1
	f.now = f.now || a.Now && a.Whole() // the last packet, which asked for it, may have overtaken others
	if a.Whole() && f.service != Ordered {
		e.complete(p, f, a)
	}
	return taken
}

// touched reports whether any packet of a message arrived before. If there is no assembly of
// it, it was given up.
func (f *rxFlow) touched(first, count uint32) bool {
	if int32(first-f.base) < 0 {
		return true
	}
	for s := first; s != first+count && s-f.base < wire.Window; s++ {
		if f.seen.has(s) {
			return true
		}
	}
	return false
}

// assemble begins a message of several packets, or keeps one that is early.
func (e *Engine) assemble(p *peer, f *rxFlow, t *wire.Part, first, count uint32) (*Assembly, int) {
	for a := f.assemblies; a != nil; a = a.Next {
		if !a.Whole() && first-a.Number < a.Count { // it was cut short
			e.remove(f, a)
			break
		}
	}
	if uint64(t.Total) > uint64(e.cfg.MaxMessage) {
		return nil, e.refusal()
	}
	var bytes []byte
	if len(e.waiting) == 0 || f.blocked(first) {
		bytes = e.cfg.Host.Room(int(t.Total))
	}
	if bytes == nil {
		return nil, e.lacks(p, f, t, first)
	}
	return e.assemblies.Begin(&f.assemblies, first, t.Total, t.Fragment, bytes, e.Now), taken
}

func (e *Engine) refusal() int {
	e.Stats.Refused++
	return refusedHere
}

// lacks decides how a packet ends if there is no memory for its message: it has to come again if
// there may soon be some.
func (e *Engine) lacks(p *peer, f *rxFlow, t *wire.Part, first uint32) int {
	if f.blocked(first) || !e.cfg.Host.Soon(int(t.Total)) {
		return e.refusal()
	}
	e.Stats.Beyond++
	e.waiting.Add(&f.wait, p.Slot, first, t, e.Now)
	return waits
}

// blocked reports whether a message is the next one of an ordered flow and others are behind it that
// keep their memory until it has come or was refused. It waits for no other's memory.
func (f *rxFlow) blocked(first uint32) bool {
	return f.service == Ordered && first == f.base && f.assemblies != nil
}

// offer gives memory to the messages that wait for it, and tells their senders to send again.
func (e *Engine) offer() {
	for {
		w, room := e.waiting.Next(e.cfg.Host, e.Now)
		if w == nil {
			return
		}
		p := e.peers[w.Peer]
		f := p.rx[w.Service]
		f.wait = nil
		switch {
		case room == nil:
		case int32(w.Number-f.base) < 0: // its sender gave it up
			e.cfg.Host.Drop(room)
		default:
			e.assemblies.Begin(&f.assemblies, w.Number, w.Total, w.Fragment, room, e.Now)
		}
		e.respond(p, f, true, false)
	}
}

// hand delivers a message of one packet as it came.
func (e *Engine) hand(p *peer, f *rxFlow, t *wire.Part, bytes []byte) int {
	if t.Cancel || len(bytes) > e.cfg.MaxMessage || len(bytes) != int(t.Total) {
		return refusedHere
	}
	e.delivery = Delivery{From: p.Addr, Service: t.Service, Bytes: bytes}
	if len(e.waiting) > 0 && !f.blocked(t.Seq) || !e.cfg.Host.Deliver(&e.delivery, false) {
		return e.lacks(p, f, t, t.Seq)
	}
	e.Stats.Delivered++
	return taken
}

// complete delivers a message that was assembled.
func (e *Engine) complete(p *peer, f *rxFlow, a *Assembly) {
	e.delivery = Delivery{From: p.Addr, Service: f.service, Bytes: a.Bytes}
	a.Bytes = nil
	e.remove(f, a)
	e.Stats.Delivered++
	e.cfg.Host.Deliver(&e.delivery, true)
}

// release delivers the messages of an ordered flow when all before them have come; with all set,
// also messages that wait for others that never come.
func (e *Engine) release(p *peer, f *rxFlow, all bool) {
	for {
		var next *Assembly
		for a := f.assemblies; a != nil; a = a.Next {
			if a.Whole() && (all || int32(f.base-a.Number) >= 0) && (next == nil || int32(a.Number-next.Number) < 0) {
				next = a
			}
		}
		if next == nil {
			return
		}
		e.pass(f, next.Number)
		e.complete(p, f, next)
	}
}

// pass refuses the packets before a number that have not come: they are too late.
func (e *Engine) pass(f *rxFlow, first uint32) {
	for ; int32(first-f.base) > 0; f.base++ {
		if f.seen.has(f.base) {
			e.unmark(&f.seen, f.base)
			continue
		}
		f.refuse(f.base)
		if a := f.assemblyOf(f.base); a != nil {
			e.remove(f, a)
		}
	}
}

// assemblyOf returns the message that lacks a packet, or nil.
func (f *rxFlow) assemblyOf(seq uint32) *Assembly {
	for a := f.assemblies; a != nil; a = a.Next {
		if seq-a.Number < a.Count && !a.Whole() {
			return a
		}
	}
	return nil
}

// discard gives up a message that the sender gave up.
func (e *Engine) discard(f *rxFlow, first uint32) {
	if a := f.assemblies.Find(first); a != nil && !a.Whole() {
		e.remove(f, a)
	}
}

// remove takes a message out of the flow, and gives its memory back.
func (e *Engine) remove(f *rxFlow, a *Assembly) { e.assemblies.End(&f.assemblies, a, e.cfg.Host) }

// reap gives up messages of senders that fell silent, and returns when to look again.
func (e *Engine) reap(p *peer, f *rxFlow) time.Duration {
	next := never
	for a := f.assemblies; a != nil; {
		after := a.Next
		at := max(a.Heard, p.Heard.At) + 2*e.cfg.PeerTimeout
		switch {
		case e.Now < at:
			next = min(next, at)
		case !a.Whole():
			e.remove(f, a)
		default:
			e.release(p, f, true)
			return e.Now + e.cfg.MinTimeout
		}
		a = after
	}
	return next
}

// dropReceived ends the flows that come from a peer. Messages that arrived completely were
// reported as delivered, and are delivered.
func (e *Engine) dropReceived(p *peer) {
	for i, f := range &p.rx {
		if f == nil {
			continue
		}
		e.release(p, f, true)
		for f.assemblies != nil {
			e.remove(f, f.assemblies)
		}
		if f.wait != nil {
			e.waiting.Remove(&f.wait, f.wait.Number)
		}
		e.blank(&f.seen)
		p.rx[i] = nil
	}
}
