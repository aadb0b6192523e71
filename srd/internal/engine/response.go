package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// How long a response waits in a burst, in AckDelays: for the next packet, which the last one
// announced; and in all.
const (
	moreDelays  = 2
	burstDelays = 16
)

// respond has a response sent to a flow's sender: at once, with the next packets that
// go there, or a little later; of a burst when it ends.
func (e *Engine) respond(p *peer, f *rxFlow, now, more bool) {
	if f.pending++; f.pending == 1 {
		f.since = e.Now
	}
	if f.assemblies != nil {
		e.Wake(&p.Peer, e.Now+2*e.cfg.PeerTimeout)
	}
	if now || f.pending >= e.enough(p) {
		f.now = true
	}
	switch due := e.Now + e.ackDelay; {
	case f.now:
		e.Enqueue(&p.Peer)
		return
	case more:
		f.due = min(e.Now+moreDelays*e.ackDelay, f.since+burstDelays*e.ackDelay)
	case f.due == 0 || f.due > due:
		f.due = due
	}
	e.Wake(&p.Peer, f.due)
}

func (e *Engine) owesResponse(p *peer) bool {
	for _, f := range &p.rx {
		if f != nil && f.now {
			return true
		}
	}
	return false
}

// attach adds a response to a packet that carries so many bytes, if one is owed and
// there is room.
func (e *Engine) attach(p *peer, k *wire.Packet, bytes int) {
	var f *rxFlow
	for _, g := range &p.rx {
		if g != nil && (g.now || g.due > 0 && (f == nil || !f.now)) {
			f = g
		}
	}
	if f == nil {
		return
	}
	r := &k.Response
	// One by one: a literal would clear all masks, which is a good part of what a response costs.
	r.Service, r.Base, r.Floor = f.service, f.base, f.floor
	r.Grant, r.Pressure = e.share(p), min(e.cfg.Host.Pressure(), NoMemory-1)
	if f.wait != nil {
		r.Pressure = NoMemory
	}
	r.NSeen, r.NRefused, r.HasEcho = 0, 0, false
	if f.seen.n > 0 {
		r.NSeen = f.seen.Words(f.base, &r.Seen)
	}
	if f.refused != nil {
		r.NRefused = f.refused.Words(f.floor, &r.Refused)
	}
	if bytes > 0 && wire.HeaderLen+wire.PartLen+r.Len()+bytes > int(p.Fragment)+wire.Overhead {
		p.alone = f.now
		return
	}
	if f.hasEcho {
		r.HasEcho, r.EchoPath, r.EchoStamp = true, f.echoPath, f.echoStamp
		r.Delay = uint32((e.Now - f.echoAt) / time.Microsecond)
		f.hasEcho = false
	}
	k.HasResponse, p.alone = true, false
	f.pending, f.due, f.now = 0, 0, false
	if e.owesResponse(p) {
		e.Enqueue(&p.Peer)
	}
}
