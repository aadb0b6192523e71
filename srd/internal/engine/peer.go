package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// States of a peer.
const (
	vacant      = iota
	known       // no session, and nothing to send
	greeting    // a session is asked for, or an old one is verified
	established // packets may be exchanged
)

// peer is what an endpoint keeps of another one: this much, and the windows of its
// flows, while it is idle.
type peer struct {
	addr   wire.Addr
	local  uint64 // token that it has to name
	remote uint64 // token that it wants
	epoch  uint64 // its own; 0 is unknown
	mine   uint64 // the one it knows this endpoint by
	stamp  uint64 // of its last greeting
	cookie uint64 // that it wants to see in ours
	own    uint64 // stamp of our greeting
	ours   uint32 // line of the packets that it gets
	theirs uint32 // and of those that it sends

	slot      uint32
	wakeAt    time.Duration
	timer     int32 // place in the heap, or -1
	heard     time.Duration
	progress  time.Duration // when something was settled, or the first packet left
	helloAt   time.Duration // when to greet again
	heardRaw  time.Duration // raw time of heard
	next      uint32        // in the queue of those that are ready
	state     uint8
	queued    bool
	welcome   bool // is owed
	wanted    bool // it sends by a session of which this side does not know
	hellos    uint8
	quarters  uint8         // of PeerTimeout that it has been silent for
	fragment  uint16        // bytes of a message that a packet to it has
	limits    wire.Limits   // MTU 0: not known yet
	longs     uint32        // long packets that are under way
	large     time.Duration // since when one is and none has arrived
	small     time.Duration // when something else was answered first since then, or 0
	echo      bool          // is owed
	alone     bool          // the response that is owed has room in no packet with a part
	echoPath  uint8
	path      uint8 // of the last response
	echoStamp uint32

	flying uint32 // packets under way, of all flows
	grant  uint16
	sender bool  // counted as one that sends now
	turn   uint8 // the service whose flow sent last
	burst  uint8 // packets that it sent in a row
	tx     [wire.Services]*txFlow
	rx     [wire.Services]*rxFlow
	net    *network
}

// queue is a list of peers by their field next.
type queue struct{ head, tail uint32 }

// enqueue has Next look at a peer.
func (e *Engine) enqueue(p *peer) {
	if p.queued {
		return
	}
	p.queued, p.next = true, none
	if e.ready.head == none {
		e.ready.head = p.slot
	} else {
		e.peers[e.ready.tail].next = p.slot
	}
	e.ready.tail = p.slot
}

func (e *Engine) dequeue() *peer {
	p := e.peers[e.ready.head]
	e.ready.head = p.next
	p.queued = false
	return p
}

// find answers the peer with an address, made if there is none.
func (e *Engine) find(a wire.Addr) *peer {
	if p := e.latest; p != nil && p.addr == a { // what is forgotten makes room for another one at once
		return p
	}
	if i, ok := e.index[a]; ok {
		e.latest = e.peers[i]
		return e.latest
	}
	slot, ok := e.vacate()
	if !ok {
		return nil
	}
	p := e.peers[slot]
	*p = peer{addr: a, slot: slot, timer: -1, state: known, mine: e.cfg.Wall, heard: e.now, heardRaw: e.raw, wakeAt: never, next: none, grant: uint16(e.cfg.First)}
	p.fragment = uint16(min(e.fragment, smallFragment))
	p.local = uint64(slot) | e.rng.Uint64()<<24
	p.turn, p.path = uint8(e.rng.Uint32()), uint8(e.rng.Uint32())
	e.index[a] = slot
	*e.hosts.Of(a.GID)++
	return p
}

const mostPeers = 1 << 24 // slots that a token can name

// vacate answers a slot that is free, forgetting an idle peer if it must.
func (e *Engine) vacate() (uint32, bool) {
	if n := len(e.free); n > 0 {
		s := e.free[n-1]
		e.free = e.free[:n-1]
		return s, true
	}
	if len(e.peers) < min(e.cfg.MaxPeers, mostPeers) {
		if len(e.chunk) == 0 {
			e.newChunk()
		}
		e.peers, e.chunk = append(e.peers, &e.chunk[0]), e.chunk[1:]
		return uint32(len(e.peers) - 1), true
	}
	i, ok := e.sweep.Find(len(e.peers), e.now, e.cfg.EvictAge, e.forgettable)
	if ok {
		e.forget(e.peers[i])
		return e.vacate()
	}
	return 0, false
}

// chunkLength is how many peers are allocated at a time: with the allocator's own word
// about them they fill 8 KiB.
const chunkLength = 30

// newChunk makes room for peers. It is written to at once: the first message to or from a
// peer does not wait for the kernel to find its memory.
func (e *Engine) newChunk() {
	e.chunk = make([]peer, chunkLength)
	for i := range e.chunk {
		e.chunk[i].timer = -1
	}
}

// idle tells whether a peer has nothing that anybody waits for.
func (e *Engine) idle(p *peer) bool {
	if p.state == vacant || p.flying > 0 {
		return false
	}
	for _, f := range &p.tx {
		if f != nil && f.busy() {
			return false
		}
	}
	return true
}

// forgettable reports whether a peer has nothing under way and was silent for long.
func (e *Engine) forgettable(i int) bool {
	p := e.peers[i]
	return e.idle(p) && e.now-p.heard > e.cfg.EvictAge
}

// admits reports whether a host may have another peer, and forgets a silent peer of the host
// if it must.
func (e *Engine) admits(gid [16]byte) bool {
	count := e.hosts.Of(gid)
	if e.cfg.Key != nil || int(*count) < e.hosts.Share(e.cfg.MaxPeers) {
		return true
	}
	i, ok := e.hosts.Sweep.Find(len(e.peers), e.now, e.cfg.EvictAge, func(i int) bool { return e.hosts.Of(e.peers[i].addr.GID) == count && e.forgettable(i) })
	if ok {
		e.forget(e.peers[i])
	}
	return ok
}

// hears notes that a peer said something.
func (e *Engine) hears(p *peer) { p.heard, p.heardRaw = e.now, e.raw }

// mayForget reports whether nothing came from a peer for so long that it may forget this
// endpoint. It has to be greeted before more is sent: what is under way in a session that the
// peer has forgotten ends as unresponsive.
func (e *Engine) mayForget(p *peer) bool {
	return e.raw-p.heardRaw >= time.Duration(p.limits.Remember)*time.Microsecond/2
}

// forget frees a peer's slot. Greetings that are older than what is forgotten with it
// are asked for a cookie from now on: they may be replayed.
func (e *Engine) forget(p *peer) {
	e.dropReceived(p)
	e.forgot, e.intact = max(e.forgot, p.stamp), e.cfg.Boot()
	e.leave(p)
	e.releaseNetwork(p)
	e.unwake(p)
	delete(e.index, p.addr)
	*e.hosts.Of(p.addr.GID)--
	p.state = vacant
	for p.queued { // rare: the queue is rebuilt without it
		q := e.dequeue()
		if q != p {
			e.enqueue(q)
		}
	}
	e.free = append(e.free, p.slot)
	e.Stats.Forgotten++
}

// byToken answers the peer to which a token was given.
func (e *Engine) byToken(t uint64) *peer {
	slot := t & (mostPeers - 1)
	if slot >= uint64(len(e.peers)) {
		return nil
	}
	if p := e.peers[slot]; p.state != vacant && p.local == t {
		return p
	}
	return nil
}
