package offload

import (
	"container/heap"
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
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

// peer is the state that an endpoint keeps of another one.
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
	life   uint32 // of the session, among all

	slot     uint32
	next     uint32        // in the queue of those that are ready
	timer    int           // place in the heap, or -1
	wakeAt   time.Duration // when to look at it
	heard    hosts.Heard
	progress time.Duration // when something was settled, or the first message handed in
	helloAt  time.Duration // when to greet again
	answerAt time.Duration // when a response is due, or 0
	retryAt  time.Duration // nothing is sent until then, or 0
	againAt  time.Duration // when to send again what waits for memory, or is undecided for long

	posted  uint32        // packets with a part, but for those that did not arrive
	taken   uint32        // of them, as the peer says
	arrived uint32        // packets with a part that it sent
	told    uint32        // of them, as it was told
	grant   uint16        // packets that this end may have under way
	granted uint16        // what it was told last that it may have
	coming  uint16        // packets that may come of those, while it is one that sends
	less    time.Duration // since when it has been told less than may come, or 0

	limits   wire.Limits // MTU 0: not known yet
	fragment uint16      // bytes of a message that a packet to it has

	state   uint8
	hellos  uint8
	checks  uint8 // of the session, since the peer said something new
	tries   uint8 // rounds in which nothing arrived
	turn    uint8 // the service of the flow that sent last
	burst   uint8 // packets that it sent in a row
	queued  bool
	wanted  bool // it sends by a session of which this side does not know
	welcome bool // is owed
	answer  bool // a response is owed now
	alone   bool // and has room in no packet with a part
	held    bool // its Welcome has not landed: what overtook that would be lost
	sender  bool // counted as one that sends now

	tx [wire.Services]*txFlow
	rx [wire.Services]*rxFlow
}

// underWay returns how many packets with a part the peer has not taken.
func (p *peer) underWay() int { return max(0, int(int32(p.posted-p.taken))) }

// queue is a list of peers by their field next.
type queue struct{ head, tail uint32 }

// enqueue queues a peer for Next.
func (m *Machine) enqueue(p *peer) {
	if p.queued {
		return
	}
	p.queued, p.next = true, none
	if m.ready.head == none {
		m.ready.head = p.slot
	} else {
		m.peers[m.ready.tail].next = p.slot
	}
	m.ready.tail = p.slot
}

func (m *Machine) dequeue() *peer {
	p := m.peers[m.ready.head]
	m.ready.head = p.next
	p.queued, p.burst = false, 0
	return p
}

// find returns the peer with an address, and creates it if there is none.
func (m *Machine) find(a wire.Addr) *peer {
	if i, ok := m.hosts.Slot(a); ok {
		return m.peers[i]
	}
	slot, ok := m.hosts.Add(a, m.now)
	if !ok {
		return nil
	}
	if int(slot) == len(m.peers) {
		m.peers = append(m.peers, new(peer))
	}
	p := m.peers[slot]
	*p = peer{addr: a, slot: slot, timer: -1, state: known, mine: m.cfg.Wall, heard: hosts.Heard{At: m.now, Raw: m.raw}, next: none, grant: uint16(m.cfg.First), fragment: uint16(m.fragment), limits: wire.NoLimits}
	p.local = uint64(slot) | m.rng.Uint64()<<24
	p.turn = uint8(m.rng.Uint32())
	m.begin(p)
	return p
}

// begin counts the packets of a peer anew.
func (m *Machine) begin(p *peer) {
	m.lives++
	p.life = max(1, m.lives)
	p.posted, p.taken, p.arrived, p.told = 0, 0, 0, 0
	p.tries, p.retryAt, p.held = 0, 0, false
	p.grant, p.granted = uint16(m.cfg.First), uint16(m.cfg.First)
	m.left(p)
}

// forgettable reports whether a peer has nothing under way and was silent for long.
func (m *Machine) forgettable(slot uint32) bool {
	p := m.peers[slot]
	return p.state != vacant && !p.unsettled() && m.now-p.heard.At > m.cfg.EvictAge
}

// hears records that something came from a peer.
func (m *Machine) hears(p *peer) { p.heard = hosts.Heard{At: m.now, Raw: m.raw} }

// forget frees a peer's slot. Greetings that are older than what is forgotten with it
// are asked for a cookie from now on: they may be replayed.
func (m *Machine) forget(p *peer) {
	m.dropReceived(p)
	m.fail(p, true) // releases what flows keep; no message of them is unsettled
	if p.timer >= 0 {
		heap.Remove(&m.timers, p.timer)
	}
	m.left(p)
	m.hosts.Remove(p.addr, p.stamp)
	p.state, p.life = vacant, 0
	for p.queued { // rare: the queue is rebuilt without it
		if q := m.dequeue(); q != p {
			m.enqueue(q)
		}
	}
	m.Stats.Forgotten++
}

// byToken returns the peer to which a token was given, or nil.
func (m *Machine) byToken(t uint64) *peer {
	slot := t & (hosts.MaxSlots - 1)
	if slot >= uint64(len(m.peers)) {
		return nil
	}
	if p := m.peers[slot]; p.state != vacant && p.local == t {
		return p
	}
	return nil
}

// senderAge is how long a peer counts as a sender after it sent.
const senderAge = 50 * time.Millisecond

// enter counts a peer that greets or sends among those that send.
func (m *Machine) enter(p *peer) {
	if !p.sender {
		p.sender = true
		m.senders = append(m.senders, p.slot)
		m.expect(p, p.granted)
	}
}

// expect sets how many packets may come from a peer that sends.
func (m *Machine) expect(p *peer, n uint16) {
	m.coming += int(n) - int(p.coming)
	p.coming = n
}

func (m *Machine) left(p *peer) {
	if !p.sender {
		return
	}
	p.sender, p.less = false, 0
	m.expect(p, 0)
	last := len(m.senders) - 1
	for i, slot := range m.senders {
		if slot == p.slot {
			m.senders[i] = m.senders[last]
			m.senders = m.senders[:last]
			return
		}
	}
}

// share returns how many packets a peer may have under way towards this endpoint: its part of
// the budget, as far as others may not use that still. A peer that does not send has what it
// begins with. Each call checks two of the senders, to find the ones that stopped.
func (m *Machine) share(p *peer) uint16 {
	for range min(2, len(m.senders)) {
		m.look = (m.look + 1) % len(m.senders)
		if q := m.peers[m.senders[m.look]]; m.now-q.heard.At > senderAge {
			m.left(q)
			if len(m.senders) == 0 {
				break
			}
		}
	}
	p.granted = uint16(m.cfg.First)
	if p.sender {
		free := m.cfg.Budget - m.coming
		p.granted = uint16(min(max(min(m.cfg.Budget/len(m.senders), int(p.coming)+free), 1), 1<<15))
		switch {
		case p.granted >= p.coming || p.less > 0 && m.now-p.less > senderAge:
			p.less = 0
			m.expect(p, p.granted)
		case p.less == 0: // what it was told before may be under way
			p.less = m.now
		}
	}
	return p.granted
}

// timers are the peers with timers, the earliest first.
type timers []*peer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].wakeAt < t[j].wakeAt }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer, t[j].timer = i, j
}

func (t *timers) Push(x any) {
	p := x.(*peer)
	p.timer = len(*t)
	*t = append(*t, p)
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	p := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	p.timer = -1
	return p
}

// wake schedules tick for a peer no later than at.
func (m *Machine) wake(p *peer, at time.Duration) {
	switch {
	case p.timer < 0:
		p.wakeAt = at
		heap.Push(&m.timers, p)
	case at < p.wakeAt:
		p.wakeAt = at
		heap.Fix(&m.timers, p.timer)
	}
}

// tick does what is due for a peer, and sets its timer anew.
func (m *Machine) tick(p *peer) {
	heap.Remove(&m.timers, p.timer)
	next := never
	at := func(t time.Duration) { next = min(next, t) }
	if p.retryAt != 0 {
		if m.now >= p.retryAt {
			p.retryAt = 0
			m.enqueue(p)
		} else {
			at(p.retryAt)
		}
	}
	if p.answerAt != 0 {
		if m.now >= p.answerAt {
			p.answerAt, p.answer = 0, true
			m.enqueue(p)
		} else {
			at(p.answerAt)
		}
	}
	if p.state == greeting {
		if m.now >= p.helloAt {
			m.enqueue(p)
		} else {
			at(p.helloAt)
		}
	}
	if p.unsettled() {
		if m.now >= p.againAt {
			p.againAt = m.now + min(engine.AskAgain, m.cfg.PeerTimeout/32)
			for _, f := range p.tx {
				if f != nil {
					m.holdBack(f, nil)
				}
			}
			m.enqueue(p)
		}
		at(p.againAt)
		at(m.watch(p))
	}
	for _, f := range p.rx {
		if f != nil && f.assemblies != nil {
			at(m.reap(p, f))
		}
	}
	if next != never {
		m.wake(p, max(next, m.now+time.Microsecond))
	}
}

// watch checks a peer with unsettled messages: it greets the peer while it is silent, gives it up
// when it was silent for PeerTimeout, and returns when to look again.
func (m *Machine) watch(p *peer) time.Duration {
	last := max(p.heard.At, p.progress)
	if m.now-last >= m.cfg.PeerTimeout {
		m.fail(p, true)
		return never
	}
	if check := m.cfg.PeerTimeout / 16; p.state == established {
		if m.now-last < check {
			return last + check
		}
		if p.tries > 0 && p.tries < refuseTries { // its device lives, and has no buffers
			return m.now + check
		}
		m.Stats.Probes++
		p.checks = min(p.checks+1, 200)
		m.greet(p)
		return m.now + check
	}
	return last + m.cfg.PeerTimeout
}
