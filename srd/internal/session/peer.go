package session

import (
	"container/heap"
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// State is the state of a peer's session.
type State uint8

const (
	Vacant      State = iota // the slot has no peer
	Known                    // no session, and nothing to send
	Greeting                 // a session is asked for, or an old one is verified
	Established              // packets may be exchanged
)

// Peer is what both machines keep of another endpoint, while it is idle too.
type Peer struct {
	Addr   wire.Addr
	Local  uint64 // token that it has to name
	Remote uint64 // token that it wants
	Epoch  uint64 // its own; 0 is unknown
	Mine   uint64 // the one it knows this endpoint by
	Cookie uint64 // that it wants to see in our greeting
	Own    uint64 // stamp of our greeting
	Stamp  uint64 // of its last greeting
	Ours   uint32 // verification tag of the packets that it gets
	Theirs uint32 // and of those that it sends

	Slot     uint32
	timer    int32         // place in the heap, or -1
	WakeAt   time.Duration // when to look at it
	next     *Peer         // in the queue of those that are ready
	Heard    Heard
	Progress time.Duration // when something was settled, or the first message was handed in
	HelloAt  time.Duration // when to greet again
	Limits   wire.Limits   // MTU 0: not known yet
	Fragment uint16        // bytes of a message that a packet to it has
	host     uint16        // the counter of its host

	State   State
	Hellos  uint8
	Burst   uint8 // packets that were sent to it in a row
	queued  bool
	Sender  bool // counted as one that sends now
	Welcome bool // is owed
	Wanted  bool // it sends by a session of which this side does not know
}

// Heard is when something came from a peer last: by the machine's clock, which does not jump,
// and by the clock passed to Advance.
type Heard struct{ At, Raw time.Duration }

// Find returns the peer with an address, and creates it if there is none; nil if there are too many.
func (s *Sessions) Find(a wire.Addr) *Peer {
	if p := s.Lookup(a); p != nil {
		return p
	}
	slot, ok := s.slot()
	if !ok {
		return nil
	}
	p := s.hooks.Make(Peer{
		Addr: a, Slot: slot, Local: uint64(slot) | s.Rng.Uint64()<<24, Mine: s.cfg.Wall, State: Known,
		timer: -1, WakeAt: Never, Heard: Heard{At: s.Now, Raw: s.raw}, Limits: wire.NoLimits, host: s.host(&a.GID),
	})
	s.slots[a] = slot
	s.counts[p.host]++
	if int(slot) == len(s.peers) {
		s.peers = append(s.peers, p)
	}
	return p
}

// Lookup returns the peer with an address, or nil.
func (s *Sessions) Lookup(a wire.Addr) *Peer {
	if slot, ok := s.slots[a]; ok {
		return s.peers[slot]
	}
	return nil
}

// Expect makes room for the first n peers.
func (s *Sessions) Expect(n int) { s.peers = make([]*Peer, 0, n) }

// ByToken returns the peer to which a token was given, or nil.
func (s *Sessions) ByToken(t uint64) *Peer {
	slot := t & (maxSlots - 1)
	if slot >= uint64(len(s.peers)) {
		return nil
	}
	if p := s.peers[slot]; p.State != Vacant && p.Local == t {
		return p
	}
	return nil
}

// Hears records that something came from a peer.
func (s *Sessions) Hears(p *Peer) { p.Heard = Heard{At: s.Now, Raw: s.raw} }

// Forgets reports whether a peer was silent for so long that it may have forgotten this endpoint.
// It has to be greeted before more is sent: what is under way in a session that it has forgotten
// ends as unresponsive.
func (s *Sessions) Forgets(p *Peer) bool {
	return s.raw-p.Heard.Raw >= time.Duration(p.Limits.Remember)*time.Microsecond/2
}

// Forget frees the slot of a peer to which no message is unsettled. Greetings that are older than
// what is forgotten with it are asked for a cookie from now on: they may be replayed.
func (s *Sessions) Forget(p *Peer) {
	s.hooks.Forget(p)
	s.intact = s.cfg.Boot()
	if p.timer >= 0 {
		heap.Remove(&s.timers, int(p.timer))
	}
	delete(s.slots, p.Addr)
	s.counts[p.host]--
	s.free = append(s.free, p.Slot)
	s.forgot = max(s.forgot, p.Stamp)
	p.State = Vacant
	for p.queued { // rare: the queue is rebuilt without it
		if q := s.Dequeue(); q != p {
			s.Enqueue(q)
		}
	}
	s.Stats.Forgotten++
}

// queue is a list of peers by their field next.
type queue struct{ head, tail *Peer }

// Enqueue queues a peer that may have something to send.
func (s *Sessions) Enqueue(p *Peer) {
	if p.queued {
		return
	}
	p.queued, p.next = true, nil
	if s.ready.head == nil {
		s.ready.head = p
	} else {
		s.ready.tail.next = p
	}
	s.ready.tail = p
}

// Ready returns the first peer of the queue, or nil.
func (s *Sessions) Ready() *Peer { return s.ready.head }

// Dequeue takes the first peer out of the queue, which must not be empty.
func (s *Sessions) Dequeue() *Peer {
	p := s.ready.head
	s.ready.head = p.next
	p.queued, p.next, p.Burst = false, nil, 0
	return p
}

// turnLength is how many packets a peer is sent before others get their turn.
const turnLength = 8

// Turn counts a packet that was sent to the first peer of the queue. If it was the last of its turn,
// the peer goes behind the others; done has it leave.
func (s *Sessions) Turn(p *Peer, done bool) {
	if p.Burst++; done || p.Burst >= turnLength {
		s.endTurn(done)
	}
}

func (s *Sessions) endTurn(done bool) {
	if p := s.Dequeue(); !done {
		s.Enqueue(p)
	}
}

// Wake schedules the tick of a peer no later than at. Most timers are set anew before they end: the
// tick then finds nothing due, and schedules the next one.
func (s *Sessions) Wake(p *Peer, at time.Duration) {
	if at < p.WakeAt {
		s.wakeEarlier(p, at)
	}
}

func (s *Sessions) wakeEarlier(p *Peer, at time.Duration) {
	p.WakeAt = at
	if p.timer < 0 {
		heap.Push(&s.timers, p)
	} else {
		heap.Fix(&s.timers, int(p.timer))
	}
}

// tick does what is due for a peer, and sets its timer anew.
func (s *Sessions) tick(p *Peer) {
	heap.Remove(&s.timers, int(p.timer))
	next := Never
	if p.State == Greeting {
		if s.Now >= p.HelloAt {
			s.Enqueue(p)
		} else {
			next = p.HelloAt
		}
	}
	s.Wake(p, max(min(next, s.hooks.Tick(p)), s.Now+time.Microsecond))
}

// timers are the peers with timers, the earliest first.
type timers []*Peer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].WakeAt < t[j].WakeAt }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer, t[j].timer = int32(i), int32(j)
}

func (t *timers) Push(x any) {
	p := x.(*Peer)
	p.timer = int32(len(*t))
	*t = append(*t, p)
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	p := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	p.timer, p.WakeAt = -1, Never
	return p
}
