package engine

import (
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Out is a packet to be sent: Headers bytes that Next has written, then Length bytes
// of a message.
type Out struct {
	To              wire.Addr
	Path            uint8 // by which of one's own paths
	Headers         int
	Tag             uint64 // of the message that the bytes are from, if Length > 0
	Offset, Length  int
	Seal            bool // call Seal when the bytes are there
	Unauthenticated bool // it goes to an unauthenticated peer
}

// Next makes the packet to be sent next, and returns false if there is none. b has
// room for wire.MaxHeaders. The message's bytes are read before the next call of the
// engine.
func (e *Engine) Next(b []byte, o *Out) bool {
	e.offer()
	if e.Replies() {
		to, n := e.NextReply(b)
		*o = Out{To: to, Headers: n, Unauthenticated: true}
		return true
	}
	for s := e.Ready(); s != nil; s = e.Ready() {
		p := e.peers[s.Slot]
		*o = Out{To: p.Addr}
		k := &e.out
		k.HasPart, k.HasResponse, k.HasCredit, k.RespondNow, k.More, k.Waits = false, false, false, false, false, false
		k.Token, k.Slot, k.VTag, k.Stamp, k.SubSeq = p.Remote, p.Slot, p.Ours, e.Stamp(), 0
		k.Heard = 0
		if !e.make(p, k, o) {
			e.Dequeue()
			continue
		}
		k.SubFlow = o.Path
		if p.net != nil && k.Type == wire.Flow { // others do not use it
			k.Heard, p.net.came = p.net.came, 0
		}
		o.Headers = k.Encode(b)
		e.Stats.Sent++
		// A peer that gets a part of a message has got everything else before, but for
		// responses of other services.
		e.Turn(s, k.HasPart && p.State == session.Established && !e.waits(p) && !e.owesResponse(p))
		return true
	}
	return false
}

// make makes the next packet to a peer, and reports whether there is one.
func (e *Engine) make(p *peer, k *wire.Packet, o *Out) bool {
	if p.State == session.Greeting && e.Now >= p.HelloAt {
		if e.unsettled(p) || p.Wanted {
			p.Wanted = false
			e.makeHello(p, k, o)
			return true
		}
		p.State = session.Known // no message waits for it any more
	}
	switch {
	case p.Remote == 0:
		return false
	case p.Welcome:
		p.welcomed = true
		e.Grant(&p.Peer, k)
		o.Path = e.responsePath(p)
		e.attach(p, k, wire.WelcomeLen)
		if !k.HasResponse && e.crowded() {
			e.grant(p, k)
		}
	case p.echo:
		p.echo = false
		e.unnamed(p, false)
		k.Type, k.Echo = wire.Echo, wire.Echoed{Path: p.echoPath, Stamp: p.echoStamp}
		o.Path = e.responsePath(p)
	case p.State == session.Established && e.makeProbe(p, k, o):
	case p.State == session.Established && !(p.alone && e.owesResponse(p)) && e.makePart(p, k, o):
		k.Type = wire.Flow
		e.attach(p, k, o.Length)
	case e.owesResponse(p):
		k.Type, o.Path = wire.Flow, e.responsePath(p)
		e.attach(p, k, 0)
		e.owes(p, o.Path)
		e.Stats.Responses++
	case p.net != nil && p.net.turn.owed:
		k.Type, o.Path = wire.Flow, e.responsePath(p)
		e.grant(p, k)
	default:
		return false
	}
	return true
}

func (e *Engine) makeProbe(p *peer, k *wire.Packet, o *Out) bool {
	path, due := e.probeDue(p)
	if due {
		e.Stats.Probes++
		k.Type, o.Path = wire.Probe, path
	}
	return due
}

// makeHello asks for a session. With the deployment's key, a message goes with the
// first greeting, if it fits into a packet of any link; not with those after it, which may
// meet another life.
func (e *Engine) makeHello(p *peer, k *wire.Packet, o *Out) {
	e.Hello(&p.Peer, k)
	if e.cfg.Key != nil && p.Hellos == 1 && p.Epoch == 0 && p.Cookie == 0 && e.fits(p) {
		if e.makePart(p, k, o) {
			p.net.carried = max(1, e.Boot())
		}
	}
	if !k.HasPart {
		o.Path = p.Hellos % uint8(e.cfg.Paths)
	}
	o.Seal = e.cfg.Key != nil
	e.GreetAgain(&p.Peer, e.helloTimeout(p))
}

// responsePath chooses a path as for a message; if it can, one by which the peer has confirmed all
// responses: otherwise it would not be known which of them was lost.
func (e *Engine) responsePath(p *peer) uint8 {
	n := p.net
	if n == nil {
		p.path = (p.path + 1) % uint8(e.cfg.Paths)
		return p.path
	}
	for range e.cfg.Paths {
		p.path = e.pick(n, -1)
		if n.paths[p.path].owed == 0 {
			break
		}
	}
	return p.path
}

// makePart adds the next packet of a flow: one that was lost before new ones, and one
// flow after the other.
func (e *Engine) makePart(p *peer, k *wire.Packet, o *Out) bool {
	room := e.room(p)
	if room <= 0 {
		return false
	}
	for range wire.Services {
		p.turn = (p.turn + 1) % wire.Services
		f := p.tx[p.turn]
		if f == nil {
			continue
		}
		switch i := e.nextLost(f); {
		case i != none:
			seq := f.live.number(f, i)
			f.live.remove(&f.live.lost, seq)
			e.Stats.Retransmitted++
			e.fill(f, seq, int(f.live.at(seq).path), k, o)
			k.RespondNow = true
			return true
		case f.Head != none && f.nxt-f.una < wire.Window:
			if e.defers(f, room) {
				continue
			}
			e.acquire(f)
			i, seq := e.number(f)
			m := &e.messages[i]
			*f.live.at(seq) = packet{message: i, cancel: m.reason != 0}
			if m.reason == 0 && m.length(seq) > smallFragment {
				if p.longs++; p.longs == 1 {
					p.large, p.small = e.Now, 0
				}
				f.live.at(seq).long = true
			}
			e.fill(f, seq, -1, k, o)
			k.RespondNow = room == 1 || m.now && f.Head == none || m.reason != 0
			if room > 1 && f.Head != none && f.nxt-f.una < wire.Window {
				k.More, f.live.more = true, e.Now
			}
			return true
		}
	}
	return false
}

// fill writes a packet of a flow, and sends it off by a path.
func (e *Engine) fill(f *txFlow, seq uint32, avoid int, k *wire.Packet, o *Out) {
	c := f.live.at(seq)
	m := &e.messages[c.message]
	o.Path = e.choose(f.p, avoid)
	x := &e.network(f.p).paths[o.Path]
	x.sent++
	x.subSeq++
	k.SubSeq = x.subSeq
	m.asked = m.asked || c.cancel
	e.put(f, m, seq, c.cancel, k, o)
	e.flies(f, seq, o.Path)
	k.Waits = e.waits(f.p)
	e.tells(f.p, k.Waits)
}

func (e *Engine) put(f *txFlow, m *message, seq uint32, cancel bool, k *wire.Packet, o *Out) {
	k.HasPart = true
	k.Part = wire.Part{Service: f.service, Cancel: cancel, Seq: seq, Floor: f.una, Index: seq - m.first, Total: m.total, Fragment: m.fragment}
	o.Tag, o.Offset, o.Length = m.tag, k.Part.Offset(), k.Part.Length()
}
