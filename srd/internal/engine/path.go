package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// path is what is known of one way to a peer, as it is at the moment.
type path struct {
	srtt, rttvar time.Duration
	least        time.Duration // round trip
	probeAt      time.Duration // of a retired path
	loss         uint32        // share of packets, of 1<<16, over the last 32 or so
	sent, missed uint64
	subSeq       uint16
	samples      uint8
	timeouts     uint8 // in a row
	need, got    uint8 // echoes before it is used again
	retired      bool
	again        bool // the last probe had its echo
	fresh        bool // had a sample since the window was last judged
	slow         bool // and that was late
}

// network is what is known of the way to a peer that is not idle.
type network struct {
	paths    [MaxPaths]path
	good     [32]uint8 // paths by which packets arrived, to be used again (REPS)
	first, n uint8
	rotation uint8
	live     uint8
	pressure uint8
	opening  bool   // the window was never too large
	window   uint32 // packets under way, times 256
	judgeAt  time.Duration
	used     time.Duration
	failing  uint16 // paths that timed out since the window was judged
}

const (
	fewestPaths = 2
	restAge     = time.Second
	firstWindow = 16
)

// network answers what is known of the way to a peer.
func (e *Engine) network(p *peer) *network {
	if p.net != nil {
		return p.net
	}
	var n *network
	if i := len(e.networks); i > 0 {
		n = e.networks[i-1]
		e.networks = e.networks[:i-1]
	} else {
		n = new(network)
	}
	*n = network{rotation: uint8(e.rng.Uint32()), live: uint8(e.cfg.Paths), opening: true, window: firstWindow << 8, judgeAt: e.now, used: e.now}
	for i := range n.paths {
		n.paths[i].need = 8
	}
	p.net = n
	e.wake(p, e.now+restAge)
	return n
}

// rest forgets the paths to a peer that has been idle.
func (e *Engine) rest(p *peer) time.Duration {
	if p.flying > 0 || e.unsettled(p) || e.now-p.net.used < restAge {
		return max(p.net.used+restAge, e.now+restAge/8)
	}
	e.releaseNetwork(p)
	p.grant = uint16(min(int(p.grant), e.cfg.First))
	return never
}

func (e *Engine) releaseNetwork(p *peer) {
	if p.net != nil {
		e.networks = append(e.networks, p.net)
		p.net = nil
	}
}

// choose answers the path of the next packet: one by which a packet arrived lately, or
// else the next in turn; not avoid, if there is another.
func (e *Engine) choose(p *peer, avoid int) uint8 {
	n := e.network(p)
	n.used = e.now
	for n.n > 0 {
		c := n.good[n.first%32]
		n.first++
		n.n--
		if !n.paths[c].retired && int(c) != avoid {
			return c
		}
	}
	paths := uint8(e.cfg.Paths)
	for range paths {
		n.rotation = (n.rotation + 1) % paths
		if !n.paths[n.rotation].retired && int(n.rotation) != avoid {
			return n.rotation
		}
	}
	return uint8(max(avoid, 0)) // the only one
}

// arrived notes that a packet arrived by a path.
func (e *Engine) arrived(p *peer, i uint8) {
	n := e.network(p)
	x := &n.paths[i]
	x.loss -= x.loss / 32
	x.timeouts = 0
	x.samples = min(x.samples+1, 255-1)
	if !x.retired && !x.slow && n.n < 32 {
		n.good[(n.first+n.n)%32] = i
		n.n++
	}
}

// missed notes that a packet was lost on a path, and judges the path by the others: a
// loss that all have says nothing of one.
func (e *Engine) missed(p *peer, i uint8) {
	n := e.network(p)
	x := &n.paths[i]
	x.loss += (1<<16 - x.loss) / 32
	x.missed++
	x.samples = min(x.samples+1, 255-1)
	const slack = 1 << 16 / 25
	if x.samples >= 16 && x.loss > 2*e.median(n)+slack {
		e.retire(p, i)
	}
}

// median is the loss of the path in the middle.
func (e *Engine) median(n *network) uint32 {
	var sorted [MaxPaths]uint32
	for i := range e.cfg.Paths {
		v := n.paths[i].loss
		j := i
		for ; j > 0 && sorted[j-1] > v; j-- {
			sorted[j] = sorted[j-1]
		}
		sorted[j] = v
	}
	return sorted[(e.cfg.Paths-1)/2]
}

// timedOut notes that a sub-flow had no response: a path that fails twice in a row,
// while others work, is out of use.
func (e *Engine) timedOut(p *peer, i uint8) {
	n := e.network(p)
	x := &n.paths[i]
	x.timeouts = min(x.timeouts+1, 255-1)
	n.failing |= 1 << i
	if x.timeouts >= 2 {
		e.retire(p, i)
	}
}

// retire takes a path out of use, until probes come back by it. Two are always used.
func (e *Engine) retire(p *peer, i uint8) {
	n := e.network(p)
	x := &n.paths[i]
	if x.retired || int(n.live) <= fewestPaths {
		return
	}
	e.Stats.Retired++
	n.live--
	x.retired, x.again, x.got = true, false, 0
	x.probeAt = e.now + e.probeInterval(p)
	for _, f := range p.tx { // what went by it need not wait for the timer
		if f == nil {
			continue
		}
		for f.live != nil && !f.live.subs[i].empty() {
			e.lose(f, f.live.number(f, f.live.subs[i].head))
		}
	}
	e.wake(p, x.probeAt)
}

func (e *Engine) probeInterval(p *peer) time.Duration { return 4 * e.cfg.MinTimeout }

// probe answers when a retired path is to be tried next.
func (e *Engine) probe(p *peer) time.Duration {
	n := p.net
	next := never
	if n == nil || int(n.live) == e.cfg.Paths {
		return next
	}
	for i := range e.cfg.Paths {
		if x := &n.paths[i]; x.retired {
			if e.now >= x.probeAt {
				e.enqueue(p)
			} else {
				next = min(next, x.probeAt)
			}
		}
	}
	return next
}

// probeDue answers a retired path that is to be tried now. An echo that does not come
// has it begin again.
func (e *Engine) probeDue(p *peer) (uint8, bool) {
	n := p.net
	if n == nil || int(n.live) == e.cfg.Paths {
		return 0, false
	}
	for i := range e.cfg.Paths {
		x := &n.paths[i]
		if !x.retired || e.now < x.probeAt {
			continue
		}
		if !x.again {
			x.got = 0
		}
		x.again = false
		x.probeAt = e.now + 4*e.probeInterval(p)
		e.wake(p, x.probeAt)
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
	p.heard = e.now
	x := &p.net.paths[i]
	if !x.retired {
		return
	}
	x.got++
	if x.got < x.need {
		x.probeAt = e.now + e.probeInterval(p)/4
		x.again = true
		e.wake(p, x.probeAt)
		return
	}
	x.retired, x.timeouts, x.loss = false, 0, 1<<16/32
	x.need = min(2*x.need, 64)
	p.net.live++
	e.Stats.Revived++
}
