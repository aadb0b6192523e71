package engine

import (
	"math/bits"
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// onResponse handles a peer's response for a flow.
func (e *Engine) onResponse(p *peer, r *wire.Response) {
	n := e.network(p)
	e.granted(p, r.Grant)
	n.pressure = r.Pressure
	if e.waits(p) { // there may be room again, for any flow
		e.Enqueue(&p.Peer)
	}
	f := p.tx[r.Service]
	if f == nil {
		e.Stats.Bogus++
		return
	}
	e.onPressure(f)
	x := e.onResponseEcho(f, r)
	if f.live == nil {
		return
	}
	if r.Base-f.una > f.nxt-f.una && f.una-r.Base > wire.Window { // of packets never sent
		e.Stats.Bogus++
		return
	}
	burst := f.live.more
	acks := e.acknowledge(f, r)
	if acks.any {
		p.Progress = e.Now
		e.endSilence(p)
	}
	if x.valid && !x.fresh && (acks.any || n.paths[x.path].strayed()) {
		e.sample(p, x.path, x.trip)
		x.fresh = acks.any
	}
	e.sampleOthers(p, r, &x, &acks, burst)
	if f.live == nil {
		return
	}
	if x.fresh { // a response of that sub-flow, whatever it says of others
		f.live.arrived(x.path, x.sent, e.Now)
		n.paths[x.path].works()
	}
	for i := range e.cfg.Paths {
		e.overtaken(f, uint8(i))
	}
}

// onPressure holds messages of a flow back while its receiver has no memory for them.
func (e *Engine) onPressure(f *txFlow) {
	switch p := f.p; {
	case p.net.pressure == NoMemory:
		p.Progress, p.large = e.Now, e.Now // the peer is there, and packets arrive
		e.holdBack(f)
	case f.live != nil && f.live.hold > 0:
		f.live.hold = 0
		e.Enqueue(&p.Peer)
	}
}

// echo is the echo of a packet in a response.
type echo struct {
	valid bool
	fresh bool // it is no repetition
	path  uint8
	sent  time.Duration // when the packet was sent
	trip  time.Duration // round trip
}

// onResponseEcho returns the echo that a response has, and samples the round trip of a fresh one.
func (e *Engine) onResponseEcho(f *txFlow, r *wire.Response) (x echo) {
	if !r.HasEcho || int(r.EchoPath) >= e.cfg.Paths {
		return x
	}
	p, n := f.p, f.p.net
	age, delay := time.Duration(e.Stamp()-r.EchoStamp)*time.Microsecond, time.Duration(r.Delay)*time.Microsecond
	x = echo{valid: age < e.cfg.PeerTimeout && age >= delay, path: r.EchoPath, sent: e.Now - age, trip: age - delay}
	if x.fresh = x.valid && e.newer(&n.paths[x.path], age); !x.fresh {
		return x
	}
	n.newest = max(n.newest, x.sent)
	e.afterSilence(p, x.trip)
	e.endSilence(p)
	e.sample(p, x.path, x.trip)
	if f.live != nil && f.live.more < x.sent { // in a burst they wait longer
		n.waits(delay)
	}
	return x
}

// acks are the packets that a response is the first to acknowledge or refuse.
type acks struct {
	any    bool
	by     uint16                  // paths by which packets arrived that were sent once
	newest [MaxPaths]time.Duration // when the last of these was sent
}

// acknowledge settles the packets that a response acknowledges or refuses.
func (e *Engine) acknowledge(f *txFlow, r *wire.Response) (a acks) {
	for s := f.una; int32(r.Base-s) > 0 && s != f.nxt; s++ {
		e.acknowledgeOne(f, r, s, &a)
	}
	for w := range uint32(r.NSeen) {
		for set := r.Seen[w]; set != 0; set &= set - 1 {
			e.acknowledgeOne(f, r, r.Base+64*w+uint32(bits.TrailingZeros64(set)), &a)
		}
	}
	return a
}

func (e *Engine) acknowledgeOne(f *txFlow, r *wire.Response, seq uint32, a *acks) {
	l := f.live
	if l == nil || !l.has(f, seq) || l.at(seq).state == settled {
		return
	}
	a.any = true
	if k := l.at(seq); k.tries == 1 { // else it is not known by which path it arrived
		l.arrived(k.path, k.sent, e.Now)
		a.newest[k.path] = max(a.newest[k.path], k.sent)
		a.by |= 1 << k.path
		e.arrived(f.p, k.path)
	}
	i := seq - r.Floor
	e.packetSettled(f, seq, i < 64*uint32(r.NRefused) && r.Refused[i/64]>>(i%64)&1 != 0)
}

// sampleOthers samples the round trips of the paths that a response acknowledges packets of but
// does not echo. How long others waited in a burst, which began until the time burst, is not known.
func (e *Engine) sampleOthers(p *peer, r *wire.Response, x *echo, a *acks, burst time.Duration) {
	for by := a.by; by != 0; by &= by - 1 {
		i := uint8(bits.TrailingZeros16(by))
		if sent := a.newest[i]; sent > burst && !(x.valid && i == x.path) {
			e.sample(p, i, e.Now-sent-min(time.Duration(r.Delay)*time.Microsecond, e.ackDelay))
		}
	}
}
