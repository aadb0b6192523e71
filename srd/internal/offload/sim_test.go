package offload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/virtual"
	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// anyLimits are those of a peer that takes everything.
var anyLimits = wire.Limits{MTU: 1<<16 - 1, Message: 1<<32 - 1, Remember: 1<<32 - 1}

// world is a network of machines in virtual time, over devices that deliver each packet
// at most once, in any order, and say how it ended. The same seed does the same again.
type world struct {
	virtual.World
	t     testing.TB
	rng   *rand.Rand
	nodes []*node
	cfg   Config
	posts uint64

	sent    []*letter
	open    int // not settled, of senders that live
	last    map[[5]int]int
	results [10]int
	patient bool // no peer is silent, gone or restarted: none may be unresponsive

	failing float64 // probability that a packet fails, and may or may not have arrived
	jitter  time.Duration
	lose    float64 // probability that a packet is not where the device says
	lost    bool    // there was one
	unheard bool    // a response did not arrive, which may have said what has to come again
	refused int     // packets for which there was no buffer
	hurry   bool    // a caller waits for each message
	forge   float64
	past    [][]byte
}

// node is an endpoint, its driver and its device.
type node struct {
	w        *world
	id       int
	m        *Machine
	life     int
	offset   time.Duration // of its clock
	wakeAt   time.Duration
	slots    []int         // that are free
	receives int           // buffers for packets
	arrived  time.Duration // when the last of them is looked at: in the order of landing
	gone     bool          // its queue pair is not there
	silent   bool          // its device does not answer
	asleep   bool          // its device answers, and its program does not poll

	rooms  int  // bytes of memory that messages may have; -1 is any
	soon   bool // what was refused may find memory later
	used   int
	refuse float64
	reply  func()   // called for each message
	later  []func() // what came while it was asleep
}

// letter is a message and its fate.
type letter struct {
	tag, from, to, life int
	service             uint8
	size                int
	sentAt, settle      time.Duration
	body                []byte
	handle              engine.Handle
	count               int // deliveries
	status              engine.Status
	void                bool // its sender is gone
	givenUp             bool // its bytes are the sender's again
	parts               map[int]engine.Status
}

const (
	shortest = 8
	wallTime = 1 << 60
)

func addrOf(i int) (a wire.Addr) {
	binary.BigEndian.PutUint32(a.GID[12:], uint32(i+1))
	a.QPN, a.QKey = uint32(1000*(i+1)), 77
	return a
}

func nodeOf(a wire.Addr) int { return int(binary.BigEndian.Uint32(a.GID[12:])) - 1 }

func simple() Config {
	return Config{Config: session.Config{MTU: 400, Budget: 48, MaxMessage: 60000}, Slots: 64}
}

func newWorld(t testing.TB, seed uint64, nodes int, cfg Config) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 99)), cfg: cfg, last: make(map[[5]int]int), jitter: 300 * time.Microsecond}
	w.Now = time.Millisecond
	for i := range nodes {
		n := &node{w: w, id: i, rooms: -1}
		n.offset = time.Duration(w.rng.Int64N(int64(time.Hour)))
		w.nodes = append(w.nodes, n)
		n.start(0)
	}
	return w
}

// start begins another life.
func (n *node) start(wallBack uint64) {
	cfg := n.w.cfg
	cfg.Addr, cfg.Host = addrOf(n.id), (*host)(n)
	cfg.Wall = wallTime + uint64(n.w.Now) - wallBack
	binary.LittleEndian.PutUint64(cfg.Seed[:], n.w.rng.Uint64())
	cfg.Raw = n.raw()
	n.life++
	n.used, n.receives, n.later = 0, 64, nil
	n.slots = n.slots[:0]
	for i := range cfg.Slots {
		n.slots = append(n.slots, i)
	}
	n.m = New(cfg)
	n.wakeAt = never
}

func (n *node) raw() time.Duration { return n.w.Now + n.offset }

// do is something that the driver does, unless its program is gone.
func (n *node) do(life int, f func()) {
	switch {
	case n.life != life:
	case n.asleep:
		n.later = append(n.later, func() { n.do(life, f) })
	default:
		n.m.Advance(n.raw())
		f()
		n.pump()
	}
}

func (n *node) wake() {
	n.asleep = false
	later := n.later
	n.later = nil
	for _, f := range later {
		f()
	}
	n.wakeAt = never
	n.pump()
}

// pump has the machine send what it can.
func (n *node) pump() {
	if n.asleep {
		return
	}
	n.m.Advance(n.raw())
	for len(n.slots) > 0 {
		slot := n.slots[len(n.slots)-1]
		var b [wire.MaxHeaders]byte
		var o engine.Out
		if !n.m.Next(slot, b[:], &o) {
			break
		}
		n.slots = n.slots[:len(n.slots)-1]
		packet := append([]byte(nil), b[:o.Headers]...)
		if o.Length > 0 {
			if n.w.sent[o.Tag].givenUp {
				n.w.t.Fatalf("message %d was given up, and its bytes are read", o.Tag)
			}
			packet = append(packet, n.w.bytes(o.Tag)[o.Offset:][:o.Length]...)
		}
		if o.Seal {
			n.m.Seal(&o.To, packet[:o.Headers], nil)
		}
		if len(packet) > n.m.cfg.MTU {
			n.w.t.Fatalf("a packet of %d bytes", len(packet))
		}
		n.w.post(n, slot, n.w.at(o.To), packet)
	}
	wait := n.m.Wait()
	if len(n.slots) == 0 {
		return // a completion goes on
	}
	if wait < never/2 && (n.w.Now+wait < n.wakeAt || n.wakeAt <= n.w.Now) {
		at := n.w.Now + wait
		n.wakeAt = at
		n.w.After(wait, func() {
			if n.wakeAt == at {
				n.wakeAt = never
				n.pump()
			}
		})
	}
}

func (w *world) some(d time.Duration) time.Duration {
	return 10*time.Microsecond + time.Duration(w.rng.Int64N(int64(d)))
}

// at returns the node with an address, or one that is gone if there is none.
func (w *world) at(a wire.Addr) *node {
	for _, n := range w.nodes {
		if addrOf(n.id) == a {
			return n
		}
	}
	return &node{gone: true}
}

// post is the device.
func (w *world) post(n *node, slot int, to *node, packet []byte) {
	w.posts++
	life := n.life
	end := func(o Outcome) {
		const hasResponse = 1
		w.unheard = w.unheard || o != Landed && packet[1]&hasResponse != 0
		w.After(w.some(w.jitter), func() {
			n.do(life, func() {
				n.slots = append(n.slots, slot)
				n.m.Completed(slot, o)
			})
		})
	}
	if w.rng.Float64() < w.forge {
		w.inject(packet)
	}
	fails := w.rng.Float64() < w.failing
	if fails {
		end(Failed)
		if w.rng.IntN(2) == 0 {
			return
		}
	}
	outcome := func(o Outcome) {
		if !fails {
			end(o)
		}
	}
	w.After(w.some(w.jitter), func() {
		switch {
		case to.silent:
			outcome(Silent)
		case to.gone:
			outcome(Gone)
		case to.receives == 0:
			w.refused++
			outcome(NotReady)
		default:
			outcome(Landed)
			if w.rng.Float64() < w.lose {
				w.lost = true
				return
			}
			to.receives--
			life := to.life
			to.arrived = max(to.arrived+1, w.Now+w.some(w.jitter))
			w.After(to.arrived-w.Now, func() {
				to.do(life, func() {
					to.m.Receive(addrOf(n.id).QPN, packet)
					to.receives++
				})
			})
		}
	})
}

// inject sends something to a node: noise, a packet that was changed or replayed.
func (w *world) inject(packet []byte) {
	b := append([]byte(nil), packet...)
	qpn := addrOf(w.rng.IntN(len(w.nodes))).QPN
	switch w.rng.IntN(4) {
	case 0: // guesses
		binary.BigEndian.PutUint64(b[4:], w.rng.Uint64())
	case 1: // changes one that it cannot name the token of
		b[w.rng.IntN(len(b))] ^= byte(1 << w.rng.IntN(8))
		binary.BigEndian.PutUint32(b[4:], w.rng.Uint32())
	default: // replays greetings: other packets cannot come twice by the device
		if b[0]&15 == byte(wire.Hello) && len(w.past) < 100 {
			w.past = append(w.past, b)
		}
		if len(w.past) == 0 {
			return
		}
		b = w.past[w.rng.IntN(len(w.past))]
		qpn = binary.BigEndian.Uint32(b[wire.HeaderLen+16:])
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	life := n.life
	w.After(w.some(time.Second), func() { n.do(life, func() { n.m.Receive(qpn, b) }) })
}

// host is what a node's machine calls.
type host node

func (h *host) Room(size int) []byte {
	if n := (*node)(h); n.rooms >= 0 && n.used+size > n.rooms || n.w.rng.Float64() < n.refuse {
		return nil
	}
	h.used += size
	return make([]byte, size)
}

func (h *host) Deliver(d *engine.Delivery, owned bool) bool {
	if owned {
		h.used -= len(d.Bytes)
	} else if h.rooms >= 0 && h.used+len(d.Bytes) > h.rooms || h.w.rng.Float64() < h.refuse {
		return false
	}
	h.w.delivered((*node)(h), d)
	if h.reply != nil {
		h.reply()
	}
	return true
}

func (h *host) Drop(b []byte)      { h.used -= len(b) }
func (h *host) Pressure() uint8    { return 0 }
func (h *host) Soon(size int) bool { return h.soon && (h.rooms < 0 || size <= h.rooms) }
func (h *host) Settled(r *engine.Result) {
	h.w.settled((*node)(h), r)
}

func (h *host) PartSettled(tag uint64, part int, s engine.Status) {
	l := h.w.sent[tag]
	if l.parts == nil || l.parts[part] != 0 {
		h.w.t.Fatalf("message %d: part %d has another status, or nobody asked for it", tag, part)
	}
	l.parts[part] = s
}

// send posts a message.
func (w *world) send(n *node, to int, service uint8, size int) *letter {
	l := &letter{tag: len(w.sent), from: n.id, to: to, life: n.life, service: service, size: max(size, shortest), sentAt: w.Now}
	w.sent = append(w.sent, l)
	msg := engine.Message{Tag: uint64(l.tag), Service: service, Len: l.size, Now: w.hurry || w.rng.IntN(2) == 0, Parts: w.rng.IntN(3) == 0}
	if msg.Parts {
		l.parts = make(map[int]engine.Status)
	}
	n.m.Advance(n.raw())
	h, err := n.m.Send(addrOf(to), msg)
	if err != nil {
		l.void = true
		return l
	}
	l.handle = h
	w.open++
	n.pump()
	return l
}

func (w *world) bytes(tag uint64) []byte {
	l := w.sent[tag]
	if l.body == nil {
		l.body = make([]byte, l.size)
		for i := range l.body {
			l.body[i] = byte(i*7 + i>>8 + l.tag)
		}
		binary.BigEndian.PutUint64(l.body, tag)
	}
	return l.body
}

func (w *world) delivered(n *node, d *engine.Delivery) {
	t := w.t
	if len(d.Bytes) < shortest || binary.BigEndian.Uint64(d.Bytes) >= uint64(len(w.sent)) {
		t.Fatalf("node %d: %d bytes delivered that nobody sent", n.id, len(d.Bytes))
	}
	l := w.sent[binary.BigEndian.Uint64(d.Bytes)]
	switch {
	case l.to != n.id || addrOf(l.from) != d.From || l.service != d.Service:
		t.Fatalf("message %d came to another place than it was sent to", l.tag)
	case !bytes.Equal(d.Bytes, w.bytes(uint64(l.tag))):
		t.Fatalf("message %d of %d bytes came changed", l.tag, l.size)
	case l.count > 0:
		t.Fatalf("message %d was delivered twice", l.tag)
	case l.status != 0 && l.status != engine.Unresponsive:
		t.Fatalf("message %d was delivered after its status, %d", l.tag, l.status)
	}
	l.count++
	if l.service == engine.Ordered {
		k := [5]int{l.from, l.life, l.to, n.life}
		if last, ok := w.last[k]; ok && last > l.tag {
			t.Fatalf("message %d was delivered after %d, which was sent later", l.tag, last)
		}
		w.last[k] = l.tag
	}
}

func (w *world) settled(n *node, r *engine.Result) {
	t := w.t
	l := w.sent[r.Tag]
	switch {
	case l.status != 0:
		t.Fatalf("message %d has a second status, %d after %d", r.Tag, r.Status, l.status)
	case l.void || l.from != n.id || l.life != n.life:
		t.Fatalf("message %d is settled by another than its sender", r.Tag)
	}
	l.status, l.settle = r.Status, w.Now
	w.open--
	w.results[r.Status]++
	switch r.Status {
	case engine.Unresponsive:
		if w.patient {
			t.Fatalf("message %d: the peer is said to be unresponsive, and is not", r.Tag)
		}
	case engine.Delivered:
		if l.count == 0 {
			t.Fatalf("message %d is said to be delivered, and was not", r.Tag)
		}
		if l.parts != nil && len(l.parts) != int(wire.Count(uint32(l.size), uint16(n.m.fragment))) {
			t.Fatalf("message %d of %d bytes has reports of %d parts", r.Tag, l.size, len(l.parts))
		}
	default:
		if l.count > 0 {
			t.Fatalf("message %d has status %d, and was delivered: %+v", r.Tag, r.Status, *r)
		}
		if r.Status == engine.Retransmit && l.service != engine.NoRetransmit {
			t.Fatalf("message %d of service %d has status %d", r.Tag, l.service, r.Status)
		}
	}
	for i, s := range l.parts {
		if s != r.Status {
			t.Fatalf("message %d has status %d, and its part %d has %d", r.Tag, r.Status, i, s)
		}
	}
}

// crash ends a node's life, and begins the next one.
func (w *world) crash(n *node, wallBack uint64) {
	for _, l := range w.sent {
		if l.from == n.id && l.life == n.life && l.status == 0 && !l.void {
			l.void = true
			w.open--
		}
	}
	n.start(wallBack)
	n.asleep = false
}

// pair is what two nodes know of each other.
func (w *world) pair(a, b int) (s string) {
	for range 2 {
		m := w.nodes[a].m
		s += fmt.Sprintf("\nnode %d, %+v", a, m.Stats)
		if x := m.Lookup(addrOf(b)); x != nil {
			p := m.peers[x.Slot]
			s += fmt.Sprintf("\n%+v", *p)
			for _, f := range p.tx {
				if f != nil {
					s += fmt.Sprintf("\n%+v", *f)
				}
			}
		}
		a, b = b, a
	}
	return s
}

// end is when all is quiet: every message has its status, all memory is back.
func (w *world) end() {
	t := w.t
	for _, l := range w.sent {
		if l.status == 0 && !l.void {
			t.Fatalf("message %d of service %d, %d bytes, from %d to %d has no status: %s", l.tag, l.service, l.size, l.from, l.to, w.pair(l.from, l.to))
		}
	}
	for _, n := range w.nodes {
		if n.used != 0 {
			t.Fatalf("node %d keeps %d bytes of messages that never came", n.id, n.used)
		}
		if n.m.mislaid != 0 && w.patient && !w.lost && !w.unheard {
			t.Fatalf("node %d sent %d messages again that were where they should be", n.id, n.m.mislaid)
		}
		if len(n.slots) != n.m.cfg.Slots {
			t.Fatalf("node %d has %d of %d slots", n.id, len(n.slots), n.m.cfg.Slots)
		}
		for k := range n.m.messages {
			if i := n.m.links.New(); uint64(i) >= uint64(len(n.m.messages)) {
				t.Fatalf("node %d: %d of %d messages are free", n.id, k, len(n.m.messages))
			}
		}
		for i := range n.m.messages {
			n.m.links.Free(uint32(i))
		}
		for _, p := range n.m.peers {
			if p.State == session.Vacant {
				continue
			}
			if p.underWay() != 0 && w.patient && !w.lost {
				t.Fatalf("node %d: credit of %d packets to %d is lost: %s", n.id, p.underWay(), nodeOf(p.Addr), w.pair(n.id, nodeOf(p.Addr)))
			}
			for _, f := range p.tx {
				if f != nil && (f.open != nil || f.Queue != session.EmptyQueue || f.una != f.nxt || len(f.again) > 0) {
					t.Fatalf("node %d: flow %d to %d is not idle: %+v", n.id, f.service, nodeOf(p.Addr), *f)
				}
			}
			for _, f := range p.rx {
				if f != nil && f.assemblies != nil {
					t.Fatalf("node %d: flow %d from %d keeps messages", n.id, f.service, nodeOf(p.Addr))
				}
			}
		}
	}
}
