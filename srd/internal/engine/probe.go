package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// A path that is not sound is probed: the peer replies to a probe with an echo at once.

// probeInterval returns a time long enough for an echo, as far as round trips are known: a slow
// machine must not be taken for many dead paths.
func (e *Engine) probeInterval(p *peer) time.Duration {
	n := e.network(p)
	t := 20 * e.cfg.MinTimeout
	if n.middle > 0 {
		t = max(4*e.cfg.MinTimeout, 4*n.middle)
	}
	return min(t<<min(max(n.silent, 1)-1, 8), max(t, e.cfg.PeerTimeout/8))
}

// probe queues a peer if a path that is not sound is to be probed now, and else returns the time
// when one is, or never.
func (e *Engine) probe(p *peer) time.Duration {
	n := p.net
	next := never
	if n == nil {
		return next
	}
	for i := range n.paths[:e.cfg.Paths] {
		if x := &n.paths[i]; !x.sound() {
			next = min(next, max(x.probeAt, n.probeAt))
		}
	}
	if e.Now >= next {
		e.Enqueue(&p.Peer)
		next = never
	}
	return next
}

// probeDue returns a path that is probed now, and counts it as probed. If an echo does not come,
// a retired path begins again; a suspect path is retired when several do not come.
func (e *Engine) probeDue(p *peer) (uint8, bool) {
	n := p.net
	if n == nil || e.Now < n.probeAt || p.idles() && !p.Sender { // responses to a peer that sends take these paths
		return 0, false
	}
	for i := range n.paths[:e.cfg.Paths] {
		x := &n.paths[i]
		if x.sound() || e.Now < x.probeAt {
			continue
		}
		if !x.again && n.newest > x.probedAt { // others overtook the probe
			if x.got, x.silent = 0, min(x.silent+1, 3); x.suspect && x.silent >= deadProbes {
				e.retire(p, uint8(i))
			}
		}
		x.probedAt = e.Now
		x.again = false
		x.probeAt = e.Now + e.probeInterval(p)<<x.silent
		if x.retired {
			x.probeAt += 3 * e.probeInterval(p) << x.silent
		}
		n.probeAt = e.Now + max(e.cfg.MinTimeout/8, n.middle/8)
		e.Wake(&p.Peer, n.probeAt)
		return uint8(i), true
	}
	return 0, false
}

// onEcho counts an echo of a retired path. After enough of them in a row the path is
// used again; one that was retired again and again needs more.
func (e *Engine) onEcho(p *peer, k *wire.Packet) {
	i := k.Echo.Path
	if int(i) >= e.cfg.Paths || p.net == nil {
		e.Stats.Bogus++
		return
	}
	x := &p.net.paths[i]
	rtt := time.Duration(e.Stamp()-k.Echo.Stamp) * time.Microsecond
	if rtt >= e.cfg.PeerTimeout || !e.newer(x, rtt) {
		e.Stats.Duplicates++
		return
	}
	e.Hears(&p.Peer)
	p.net.unnamed = 0
	e.afterSilence(p, rtt)
	e.endSilence(p)
	e.sample(p, i, rtt)
	if !x.retired {
		n := p.net
		n.newest = max(n.newest, e.Now-rtt)
		x.works()
		x.owed = 0
		return
	}
	x.got++
	x.silent = 0
	if x.got < x.need {
		x.probeAt = e.Now + e.probeInterval(p)/4
		x.again = true
		e.Wake(&p.Peer, x.probeAt)
		return
	}
	x.retired, x.owed, x.samples, x.missed = false, 0, lossAge/4, lossAge/4/64
	x.works()
	x.need = min(2*x.need, 64)
	p.net.live++
	e.Stats.Revived++
}
