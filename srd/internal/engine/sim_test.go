package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/virtual"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// anyLimits are those of a peer that takes everything.
var anyLimits = wire.Limits{MTU: 1<<16 - 1, Message: 1<<32 - 1, Remember: 1<<32 - 1}

// world is a network of engines in virtual time. The same seed does the same again.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	now    time.Duration
	events virtual.Queue[event]
	nodes  []*node
	links  func(from, to, path int) *link
	model  model
	wall   uint64
	cfg    Config

	short bool // links differ in the length of packets

	resolve time.Duration // that an address handle takes to be made; 0: nodes need none
	parcels int           // packets for which a handle was looked for
	waits   int           // of them, those that waited for one

	taken func(to int, packet []byte) // told of what a link with a queue takes

	forge   float64 // probability that an unauthenticated peer adds a packet for one that is sent
	past    [][]byte
	pastTo  []int
	packets uint64
}

// event is something that happens: a packet arrives, a node wakes, or f.
type event struct {
	at     time.Duration
	node   *node
	packet []byte
	from   Source
	f      func()
}

func (w *world) add(e event) { w.events.Add(e.at, e) }

// link is one direction of a path.
type link struct {
	delay, jitter            time.Duration
	loss, duplicate, reorder float64
	burst                    float64 // a burst begins; its packets are lost
	bursting                 int
	dead                     bool
	each                     time.Duration // a packet takes so long; 0 is none
	perByte                  time.Duration // and so much longer for each byte
	limit                    time.Duration // of the queue in front
	free                     time.Duration
	lose                     func(b []byte) bool
	sent, lost               uint64
}

// node is an endpoint and its driver.
type node struct {
	w      *world
	id     int
	e      *Engine
	life   int           // of the engine
	offset time.Duration // of its clock
	wakeAt time.Duration
	silent bool
	each   time.Duration // that its device has a packet; 0: it does not tell

	rooms    int   // bytes of memory that messages may have; -1 is any
	soon     bool  // what was refused may find memory later
	pressure uint8 // on its memory, as it says
	used     int
	refuse   float64
	mtu      int // 0: that of the world
	mac      int // of its port
	ways     *ways
	reply    func(d *Delivery)
	later    []func()
}

func addrOf(i int) (a wire.Addr) {
	binary.BigEndian.PutUint32(a.GID[12:], uint32(i+1))
	a.QPN, a.QKey = uint32(1000*(i+1)), 77
	return a
}

func idOf(a wire.Addr) int { return int(binary.BigEndian.Uint32(a.GID[12:])) - 1 }

func newWorld(t testing.TB, seed uint64, nodes int, cfg Config) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 99)), wall: 1 << 60, cfg: cfg}
	same := make(map[[3]int]*link)
	w.links = func(from, to, path int) *link {
		k := [3]int{from, to, path}
		if same[k] == nil {
			same[k] = &link{delay: 50 * time.Microsecond}
		}
		return same[k]
	}
	w.model.w = w
	for i := range nodes {
		n := &node{w: w, id: i, rooms: -1}
		n.offset = time.Duration(w.rng.Int64N(int64(time.Hour)))
		w.nodes = append(w.nodes, n)
		n.start(0)
	}
	w.now = time.Millisecond
	return w
}

// start begins another life.
func (n *node) start(wallBack uint64) {
	cfg := n.w.cfg
	cfg.Addr, cfg.Host = addrOf(n.id), (*host)(n)
	if n.mtu > 0 {
		cfg.MTU = n.mtu
	}
	cfg.Wall = n.w.wall + uint64(n.w.now) - wallBack
	binary.LittleEndian.PutUint64(cfg.Seed[:], n.w.rng.Uint64())
	n.life++
	n.used = 0
	cfg.Raw = n.raw()
	cfg.Boot = func() time.Duration { return n.w.now }
	if n.w.resolve > 0 {
		n.ways = newWays(n, cfg.Paths)
		cfg.Silent = func(to wire.Addr) { n.ways.Renew(to.GID) }
	}
	n.e = New(cfg)
	n.wakeAt = never
}

func (n *node) raw() time.Duration { return n.w.now + n.offset }

// pump has the engine send what it can.
func (n *node) pump() {
	n.e.Advance(n.raw())
	sent := 0
	defer func() {
		if sent > 0 && n.each > 0 {
			n.e.Took(sent, time.Duration(sent)*n.each)
		}
	}()
	for {
		for len(n.later) > 0 {
			f := n.later[0]
			n.later = n.later[1:]
			f()
		}
		var b [wire.MaxHeaders]byte
		var o Out
		if !n.e.Next(b[:], &o) {
			if len(n.later) > 0 {
				continue
			}
			break
		}
		packet := append([]byte(nil), b[:o.Headers]...)
		if o.Length > 0 {
			if all := n.w.model.bytes(o.Tag); o.Offset+o.Length > len(all) {
				n.w.t.Fatalf("bytes %d to %d of message %d, which has %d: %+v", o.Offset, o.Offset+o.Length, o.Tag, len(all), n.e.out.Part)
			}
			if n.w.model.sent[o.Tag].givenUp {
				n.w.t.Fatalf("message %d was given up, and its bytes are read", o.Tag)
			}
			packet = append(packet, n.w.model.bytes(o.Tag)[o.Offset:][:o.Length]...)
		}
		if o.Seal {
			n.e.Seal(&o.To, packet[:o.Headers], packet[o.Headers:])
		}
		if len(packet) > n.e.cfg.MTU {
			n.w.t.Fatalf("a packet of %d bytes", len(packet))
		}
		if n.ways == nil {
			n.w.send(n, &o, packet)
		} else {
			n.ways.post(o, packet)
		}
		sent++
	}
	if len(n.e.peers) < 8 {
		n.e.checkTurns(n.w.t)
	}
	if wait := n.e.Wait(); wait < never/2 && n.w.now+wait < n.wakeAt || n.wakeAt <= n.w.now {
		n.wakeAt = never
		if wait < never/2 {
			n.wakeAt = n.w.now + wait
			n.w.add(event{at: n.wakeAt, node: n})
		}
	}
}

func (w *world) send(n *node, o *Out, packet []byte) {
	to := idOf(o.To)
	if to < 0 || to >= len(w.nodes) {
		return
	}
	w.packets++
	src := Source{GID: addrOf(n.id).GID, QPN: addrOf(n.id).QPN + uint32(o.Path)}
	l := w.links(n.id, to, int(o.Path))
	if w.forge > 0 && w.rng.Float64() < w.forge {
		w.inject(packet, to)
	}
	copies := 1
	if w.rng.Float64() < l.duplicate {
		copies = 2
	}
	for range copies {
		l.sent++
		if l.bursting > 0 {
			l.bursting--
			l.lost++
			continue
		}
		if l.burst > 0 && w.rng.Float64() < l.burst {
			l.bursting = 1 + w.rng.IntN(20)
		}
		if l.dead || w.short && len(packet) > w.nodes[to].e.cfg.MTU || w.rng.Float64() < l.loss || l.lose != nil && l.lose(packet) {
			l.lost++
			continue
		}
		at := w.now + l.delay
		if took := l.each + l.perByte*time.Duration(len(packet)); took > 0 {
			l.free = max(l.free, w.now)
			if l.free-w.now > l.limit {
				l.lost++
				continue
			}
			l.free += took
			at = l.free + l.delay
			if w.taken != nil {
				w.taken(to, packet)
			}
		}
		if l.jitter > 0 {
			at += time.Duration(w.rng.Int64N(int64(l.jitter)))
		}
		if w.rng.Float64() < l.reorder {
			at += 3 * l.delay
		}
		w.add(event{at: at, node: w.nodes[to], packet: packet, from: src})
	}
}

// inject sends something to a node: noise, a packet that was changed or replayed.
func (w *world) inject(packet []byte, to int) {
	b := append([]byte(nil), packet...)
	src := Source{GID: addrOf(w.rng.IntN(len(w.nodes))).GID, QPN: 5}
	switch w.rng.IntN(4) {
	case 0: // guesses
		if len(b) >= wire.HeaderLen {
			binary.BigEndian.PutUint64(b[4:], w.rng.Uint64())
		}
	case 1: // changes one that it cannot name the token of
		b[w.rng.IntN(len(b))] ^= byte(1 << w.rng.IntN(8))
		binary.BigEndian.PutUint32(b[4:], w.rng.Uint32())
	default: // replays
		if len(w.past) < 100 {
			w.past, w.pastTo = append(w.past, b), append(w.pastTo, to)
		}
		i := w.rng.IntN(len(w.past))
		b, to = w.past[i], w.pastTo[i]
		if w.rng.IntN(2) == 0 {
			copy(src.GID[:], b[wire.HeaderLen:]) // of a Hello
		}
		if w.rng.IntN(3) == 0 {
			w.past[i], w.pastTo[i] = append([]byte(nil), packet...), to
		}
	}
	w.add(event{at: w.now + time.Duration(w.rng.Int64N(int64(time.Second))), node: w.nodes[to], packet: b, from: src})
}

// run goes on until a time, or until nothing happens.
func (w *world) run(until time.Duration) {
	for {
		e, ok := w.events.Next(until)
		w.now = w.events.Now
		if !ok {
			return
		}
		switch {
		case e.f != nil:
			e.f()
		case e.packet != nil:
			if !e.node.silent {
				e.node.e.Advance(e.node.raw())
				e.node.e.Receive(e.from, e.packet)
				e.node.pump()
			}
		case e.at == e.node.wakeAt && !e.node.silent:
			e.node.wakeAt = never
			e.node.pump()
		}
	}
}

func (w *world) after(d time.Duration, f func()) { w.add(event{at: w.now + d, f: f}) }

// host is what a node's engine calls.
type host node

func (h *host) Room(size int) []byte {
	n := (*node)(h)
	if n.rooms >= 0 && n.used+size > n.rooms || n.w.rng.Float64() < n.refuse {
		return nil
	}
	n.used += size
	return make([]byte, size)
}

func (h *host) Deliver(d *Delivery, owned bool) bool {
	n := (*node)(h)
	if owned {
		n.used -= len(d.Bytes)
	} else if n.rooms >= 0 && n.used+len(d.Bytes) > n.rooms || n.w.rng.Float64() < n.refuse {
		return false
	}
	n.w.model.delivered(n, d)
	if n.reply != nil {
		n.reply(d)
	}
	return true
}

func (h *host) Drop(b []byte)     { h.used -= len(b) }
func (h *host) Settled(r *Result) { h.w.model.settled((*node)(h), r) }
func (h *host) PartSettled(tag uint64, part int, s Status) {
	h.w.model.partSettled((*node)(h), tag, part, s)
}
func (h *host) Pressure() uint8 { return h.pressure }

func (h *host) Soon(size int) bool { return h.soon && (h.rooms < 0 || size <= h.rooms) }
