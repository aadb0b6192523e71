package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/hosts"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// States of a peer.
const (
	vacant      = iota
	known       // no session, and nothing to send
	greeting    // a session is asked for, or an old one is verified
	established // packets may be exchanged
)

// peer is the state that an endpoint keeps of another one: this much, and the windows of its
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
	heard     hosts.Heard
	progress  time.Duration // when something was settled, or the first packet left
	helloAt   time.Duration // when to greet again
	next      uint32        // in the queue of those that are ready
	state     uint8
	queued    bool
	welcome   bool // is owed
	welcomed  bool // one was sent, and nothing came by the session since
	wanted    bool // it sends by a session of which this side does not know
	hellos    uint8
	quarters  uint8         // of PeerTimeout that it has been silent for
	fragment  uint16        // bytes of a message that a packet to it has
	limits    wire.Limits   // MTU 0: not known yet
	longs     uint32        // long packets that are under way
	large     time.Duration // since when one is and none has arrived
	small     time.Duration // when something else was acknowledged first since then, or 0
	echo      bool          // is owed
	alone     bool          // the response that is owed has room in no packet with a part
	echoPath  uint8
	path      uint8 // of the last response
	echoStamp uint32

	flying uint32 // packets under way, of all flows
	grant  uint16
	sender bool  // counted as one that sends now
	turn   uint8 // the service of the flow that sent last
	burst  uint8 // packets that it sent in a row
	tx     [wire.Services]*txFlow
	rx     [wire.Services]*rxFlow
	net    *network
}

// queue is a list of peers by their field next.
type queue struct{ head, tail uint32 }

// enqueue queues a peer for Next.
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

// find returns the peer with an address, and creates it if there is none.
func (e *Engine) find(a wire.Addr) *peer {
	if p := e.latest; p != nil && p.addr == a { // a peer is forgotten only to reuse its slot for another
		return p
	}
	if i, ok := e.hosts.Slot(a); ok {
		e.latest = e.peers[i]
		return e.latest
	}
	slot, ok := e.hosts.Add(a, e.now)
	if !ok {
		return nil
	}
	if int(slot) == len(e.peers) {
		if len(e.chunk) == 0 {
			e.newChunk()
		}
		e.peers, e.chunk = append(e.peers, &e.chunk[0]), e.chunk[1:]
	}
	p := e.peers[slot]
	*p = peer{addr: a, slot: slot, timer: -1, state: known, mine: e.cfg.Wall, heard: hosts.Heard{At: e.now, Raw: e.raw}, wakeAt: never, next: none, grant: uint16(e.cfg.First), limits: wire.NoLimits}
	p.fragment = uint16(min(e.fragment, smallFragment))
	p.local = uint64(slot) | e.rng.Uint64()<<24
	p.turn, p.path = uint8(e.rng.Uint32()), uint8(e.rng.Uint32())
	return p
}

// chunkLength is the number of peers allocated at a time: with the allocator's header they
// fill 8 KiB.
const chunkLength = 30

// newChunk makes room for peers. It is written to at once: the first message to or from a
// peer does not wait for the kernel to find its memory.
func (e *Engine) newChunk() {
	e.chunk = make([]peer, chunkLength)
	for i := range e.chunk {
		e.chunk[i].timer = -1
	}
}

// idle reports whether no message to a peer is unsettled.
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
func (e *Engine) forgettable(slot uint32) bool {
	p := e.peers[slot]
	return e.idle(p) && e.now-p.heard.At > e.cfg.EvictAge
}

// hears records that something came from a peer.
func (e *Engine) hears(p *peer) { p.heard = hosts.Heard{At: e.now, Raw: e.raw} }

// forget frees a peer's slot. Greetings that are older than what is forgotten with it
// are asked for a cookie from now on: they may be replayed.
func (e *Engine) forget(p *peer) {
	e.dropReceived(p)
	e.intact = e.cfg.Boot()
	e.leave(p)
	e.releaseNetwork(p)
	e.unwake(p)
	e.hosts.Remove(p.addr, p.stamp)
	p.state = vacant
	for p.queued { // rare: the queue is rebuilt without it
		q := e.dequeue()
		if q != p {
			e.enqueue(q)
		}
	}
	e.Stats.Forgotten++
}

// byToken returns the peer to which a token was given, or nil.
func (e *Engine) byToken(t uint64) *peer {
	slot := t & (hosts.MaxSlots - 1)
	if slot >= uint64(len(e.peers)) {
		return nil
	}
	if p := e.peers[slot]; p.state != vacant && p.local == t {
		return p
	}
	return nil
}
