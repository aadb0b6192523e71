package engine

import (
	"time"

	"github.com/goverbs/goverbs/internal/rtt"
)

// path is the state of one path to a peer.
type path struct {
	rtt.Estimate
	least       time.Duration // round trip
	lately      time.Duration // the least since the window was judged
	probeAt     time.Duration // of a path that is not sound
	probedAt    time.Duration
	echoedAt    time.Duration // when the last packet was sent that was echoed, in whole microseconds
	sent        uint64
	subSeq      uint16
	samples     uint16 // packets of which it is known whether they arrived
	missed      uint16 // and did not; both are halved now and then
	flying      uint16
	owedSince   time.Duration
	respondedAt time.Duration
	owed        uint8 // responses that went by it since the peer named it last
	timeouts    uint8 // in a row
	stray       uint8 // packets taken for lost that may be echoed yet
	need, got   uint8 // echoes before it is used again
	silent      uint8 // probes in a row that had none
	suspect     bool  // a packet by it had no response: it is probed before it carries more
	retired     bool
	again       bool // the last probe had its echo
	slow        bool // the last round trips took longer than they need
}

// network is the state of the paths to a peer that is not idle.
type network struct {
	paths    [MaxPaths]path
	good     [32]uint8 // paths by which packets arrived, to be used again (REPS)
	first, n uint8
	subs     [MaxPaths]uint16 // last numbers of the peer's sub-flows
	heard    uint16           // sub-flows of which there is one
	came     uint16           // sub-flows by which something came since the last packet there
	rotation uint8
	chosen   uint8
	explored uint8
	limit    uint32        // loss, of 1<<16, above which a path is one that loses
	last     uint8         // path of the last packet
	stay     uint8         // packets that may follow it
	stayAt   time.Duration // now
	sentAt   time.Duration // a new packet
	live     uint8
	pressure uint8
	opening  bool   // the window was never too large
	window   uint32 // packets under way, times 256
	judgeAt  time.Duration
	used     time.Duration
	middle   time.Duration // round trip of the path in the middle
	delay    time.Duration // that the peer let responses wait
	probeAt  time.Duration // of any path: they are not all probed at once
	newest   time.Duration // when something was sent that came to its end
	failing  uint16        // paths that timed out since the window was judged
	answered time.Duration // when a response or an echo came
	agedAt   time.Duration // when losses were halved
	unnamed  time.Duration // since when the peer has named none of the responses to it, or 0
	silentAt time.Duration // when silent was counted
	silent   uint8         // timers in a row that began and ended while no response came
	turn     turn          // of the peer, as a sender
	asking   asking
	carried  time.Duration // by Config.Boot: when a message went with a greeting, or 0
}

const (
	fewestPaths   = 2
	lossAge       = 512           // packets
	lossSlack     = 3 << 16 / 100 // more than others lose, before a path is out of use
	deadProbes    = 3             // in a row without an echo, before a path is out of use
	maxOwed       = 3             // responses of which the peer names none, before a path is suspect
	exploreEach   = 16            // choices, of which one is any path
	restAge       = time.Second
	lossRest      = 4 * time.Second
	firstWindow   = 16
	spareNetworks = 64 // kept for the next peers
	// longestBurst is how many packets in a row take one path at most, if they are sent at
	// once: a device has a doorbell for each path that it uses.
	longestBurst = 16
	burstShare   = 8 // of what is under way, one burst: others come behind it soon by the same path
)

// network returns the state of the paths to a peer, and creates it if there is none.
func (e *Engine) network(p *peer) *network {
	if p.net != nil {
		return p.net
	}
	return e.newNetwork(p)
}

// newNetwork is separate so that network can be inlined. It sets fields one by one: a literal
// would be made on the stack first, which would have to grow for it.
func (e *Engine) newNetwork(p *peer) *network {
	var n *network
	if i := len(e.networks); i > 0 {
		n = e.networks[i-1]
		e.networks = e.networks[:i-1]
		*n = network{}
	} else {
		n = new(network)
	}
	n.rotation, n.explored = uint8(e.Rng.Uint32()), uint8(e.Rng.Uint32())
	n.live, n.opening, n.window, n.limit = uint8(e.cfg.Paths), true, firstWindow<<8, lossSlack
	n.judgeAt, n.used, n.agedAt = e.Now, e.Now, e.Now
	n.begin(e.Now)
	p.net = n
	e.Wake(&p.Peer, e.Now+restAge)
	return n
}

func (n *network) begin(now time.Duration) {
	for i := range n.paths {
		n.paths[i].need, n.paths[i].echoedAt = 8, now.Truncate(time.Microsecond)-1
	}
}

// rest forgets the paths to a peer that has been idle.
func (e *Engine) rest(p *peer) time.Duration {
	if p.flying > 0 || e.unsettled(p) || e.Now-p.net.used < restAge || p.takesTurns() {
		return max(p.net.used+restAge, e.Now+restAge/8)
	}
	e.releaseNetwork(p)
	p.grant = uint16(min(int(p.grant), e.cfg.First))
	return never
}

func (e *Engine) releaseNetwork(p *peer) {
	if p.net == nil {
		return
	}
	e.endTurn(p)
	if len(e.networks) < spareNetworks {
		e.networks = append(e.networks, p.net)
	}
	p.net = nil
}

// choose returns the path of the next packet: that of the last one, if both are sent at
// once, or one of its own; not avoid, if there is another.
func (e *Engine) choose(p *peer, avoid int) uint8 {
	n := e.network(p)
	n.used = e.Now
	if n.stay > 0 && n.stayAt == e.Now && int(n.last) != avoid && n.paths[n.last].sound() {
		n.stay--
		if n.n > 0 && n.good[n.first%uint8(len(n.good))] == n.last { // each is used once
			n.first++
			n.n--
		}
		return n.last
	}
	n.last, n.stay, n.stayAt = e.pick(n, avoid), uint8(min(longestBurst, max(1, p.flying/burstShare))-1), e.Now
	return n.last
}

// pick returns a path by which a packet arrived lately, or the next in turn if that is less
// busy; every exploreEach-th time any sound path.
func (e *Engine) pick(n *network, avoid int) uint8 {
	n.chosen++
	if n.chosen%exploreEach == 0 {
		if c, ok := e.explore(n, avoid); ok {
			return c
		}
	}
	next, works := e.inTurn(n, avoid)
	for n.n > 0 {
		c := n.good[n.first%uint8(len(n.good))]
		n.first++
		n.n--
		if x := &n.paths[c]; x.sound() && int(c) != avoid {
			if works && n.paths[next].load() < x.load() {
				return next
			}
			return c
		}
	}
	return next
}

// explore returns a sound path in turn, however busy; seldom one that loses.
func (e *Engine) explore(n *network, avoid int) (uint8, bool) {
	for range e.cfg.Paths {
		n.explored = (n.explored + 1) % uint8(e.cfg.Paths)
		if n.paths[n.explored].sound() && int(n.explored) != avoid && (n.chosen%(8*exploreEach) == 0 || !n.loses(n.explored)) {
			return n.explored, true
		}
	}
	return 0, false
}

// sound reports whether a path may carry messages.
func (x *path) sound() bool { return !x.retired && !x.suspect }

// loses reports whether a path loses more than others. It is seldom used then, long before it is
// retired for it.
func (n *network) loses(i uint8) bool {
	x := &n.paths[i]
	return x.missed >= 2 && x.loss() > n.limit
}

// load estimates how long a packet by this path would take.
func (x *path) load() time.Duration { return x.SRTT * time.Duration(x.flying+1) }

// inTurn returns the next path in turn, and whether it is sound: one that loses if no other is
// sound, and if none is, one that is not retired.
func (e *Engine) inTurn(n *network, avoid int) (path uint8, works bool) {
	paths := uint8(e.cfg.Paths)
	other := uint8(max(avoid, 0)) // perhaps the only one
	for range paths {
		n.rotation = (n.rotation + 1) % paths
		x := &n.paths[n.rotation]
		if x.retired || int(n.rotation) == avoid {
			continue
		}
		switch {
		case x.sound() && !n.loses(n.rotation):
			return n.rotation, true
		case x.sound():
			other, works = n.rotation, true
		case !works:
			other = n.rotation
		}
	}
	return other, works
}

// count records a packet: missed is 1 if it did not arrive, or 0.
func (x *path) count(missed uint16) {
	if x.samples >= lossAge {
		x.samples, x.missed = x.samples/2, x.missed/2
	}
	x.samples++
	x.missed += missed
}

// loss returns the share of packets that did not arrive, in units of 1/65536.
func (x *path) loss() uint32 { return uint32(x.missed) << 16 / max(1, uint32(x.samples)) }

// arrived records that a packet arrived by a path.
func (e *Engine) arrived(p *peer, i uint8) {
	n := e.network(p)
	x := &n.paths[i]
	x.count(0)
	x.works()
	if !x.retired && x.SRTT <= 2*n.middle {
		n.again(i)
	}
}

// again queues a path by which a message arrived to be used again, unless it loses.
func (n *network) again(i uint8) {
	if n.n < uint8(len(n.good)) && !n.loses(i) {
		n.good[(n.first+n.n)%uint8(len(n.good))] = i
		n.n++
	}
}

// age halves the loss counts of paths every lossRest: a path that is avoided for its losses has
// few packets to show that it is better now.
func (e *Engine) age(n *network) {
	if e.Now-n.agedAt < lossRest {
		return
	}
	n.agedAt = e.Now
	for i := range n.paths {
		x := &n.paths[i]
		x.samples, x.missed = x.samples/2, x.missed/2
	}
}

// missed records that a packet was lost on a path, and judges the path by the others: a
// loss that all share says nothing about one.
func (e *Engine) missed(p *peer, i uint8) {
	n := e.network(p)
	x := &n.paths[i]
	x.count(1)
	n.limit = 2*e.median(n) + lossSlack
	if x.samples >= lossAge/4 && x.loss() > n.limit {
		e.retire(p, i)
	}
}

// median returns the median loss of all paths.
func (e *Engine) median(n *network) uint32 {
	var losses [MaxPaths]uint32
	for i := range n.paths[:e.cfg.Paths] {
		losses[i] = n.paths[i].loss()
	}
	return median(losses[:e.cfg.Paths])
}

// median sorts a few values, and returns the lower median; 0 of none.
func median[T uint32 | time.Duration](vs []T) T {
	if len(vs) == 0 {
		return 0
	}
	for i := 1; i < len(vs); i++ {
		v, j := vs[i], i
		for ; j > 0 && vs[j-1] > v; j-- {
			vs[j] = vs[j-1]
		}
		vs[j] = v
	}
	return vs[(len(vs)-1)/2]
}

// timedOut records that a sub-flow had no response. Probes test its path, while messages take
// others.
func (e *Engine) timedOut(p *peer, i uint8) {
	n := e.network(p)
	x := &n.paths[i]
	x.timeouts = min(x.timeouts+1, 255-1)
	n.failing |= 1 << i
	e.suspect(p, x)
}

func (e *Engine) suspect(p *peer, x *path) {
	if x.suspect || x.retired {
		return
	}
	x.suspect, x.again, x.silent = true, true, 0
	x.probeAt = e.Now
	e.Wake(&p.Peer, e.Now)
	e.Enqueue(&p.Peer)
}

// works records that something came back by a path.
func (x *path) works() { x.timeouts, x.suspect = 0, false }
