package store

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/anishathalye/porcupine"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// rules are what a world goes by; each flaw breaks one.
type rules struct {
	unattached bool // the server knows of no clients, so quarantine ends at once
	budget     int  // of the mirrors
	adopting   bool // they keep what they find in buckets
	probing    bool // they have no maps
	switching  bool // or now and then

	credulous bool // flaw: bytes of a READ are taken as they are
	stateless bool // flaw: tombstones are not looked at
	unsummed  bool // flaw: neither are checksums and versions
	early     bool // flaw: clients say that their READs have ended when they have not
	unclocked bool // flaw: the server's clock is not asked for
	hasty     bool // flaw: a torn bucket counts as one without the key
	unflushed bool // flaw: a flush counts as over at once
}

// world is a server, clients and the network between them in virtual time. READs fetch
// their cache lines one by one, late, in any order, and some twice.
type world struct {
	rules
	rng     *rand.Rand
	s       *Store
	regions [][]byte
	now     int64
	seq     int
	events  events
	clients []*simClient
	lines   []*line // that READs under way have yet to fetch
	history []porcupine.Operation
	seen    uint64 // deltas that are in the history
	flushes []flushing
	keys    [][]byte
	names   map[uint64]int // fingerprint to key
	values  uint64
	reads   int
	hits    int
	// followed are those to which a tombstone led.
	followed int
	torn     uint64 // refused for their checksum
	absent   int    // keys that no bucket had
	broken   error
}

type event struct {
	at  int64
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const (
	simPage  = 64 << 10
	simKeys  = 6
	simLease = 400
)

func newWorld(seed uint64, r rules) *world {
	w := &world{rules: r, rng: rand.New(rand.NewPCG(seed, 1)), names: map[uint64]int{}}
	a, err := arena.New(simPage)
	must(err)
	mem := make([]byte, 10*simPage)
	_, err = a.Add(mem)
	must(err)
	w.regions = append(w.regions, mem)
	w.s, err = New(Config{
		Epoch: 7, Secret: wire.Secret{seed, 2}, Arena: a, Log: 64, Lease: simLease, MaxDepth: 4,
		AllocTable: func(n int) ([]byte, wire.Where) {
			w.regions = append(w.regions, make([]byte, n))
			return w.regions[len(w.regions)-1], wire.Where{Key: uint32(len(w.regions) - 1)} // a region's number
		},
		FreeTable: func(b []byte) { clear(b) },
	})
	must(err)
	w.s.between = func() {
		for len(w.lines) > 0 && w.rng.IntN(2) == 0 {
			w.fetch()
		}
	}
	for i := range simKeys {
		key := []byte("key" + strconv.Itoa(i))
		w.keys = append(w.keys, key)
		w.names[w.s.cfg.Secret.Fingerprint(key)] = i
	}
	for i := range 3 {
		c := &simClient{w: w, id: uint64(i), skew: int64(w.rng.IntN(1000))}
		w.clients = append(w.clients, c)
		c.connect()
		w.after(0, c.work)
		w.after(1, c.tell)
	}
	w.after(5, w.tick)
	return w
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (w *world) after(delay int, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + int64(delay), w.seq, do})
}

func (w *world) run(operations int) error {
	for len(w.history) < operations && w.broken == nil {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	for _, c := range w.clients {
		c.giveUp()
	}
	for _, f := range w.flushes {
		for key := range w.keys {
			w.unknown(99, f.call, simOp{key: key, lost: true})
		}
	}
	if w.broken == nil && !porcupine.CheckOperations(model, w.history) {
		w.broken = fmt.Errorf("not linearizable")
	}
	return w.broken
}

func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
	}
}

// stamp is the next moment of the history.
func (w *world) stamp() int64 { w.seq++; return int64(w.seq) }

// flushing is a flush that is not over.
type flushing struct {
	seq  uint64
	call int64
}

// server lets the server do something, and writes down what was lost meanwhile.
func (w *world) server(do func()) {
	call := w.stamp()
	do()
	for ; w.seen < w.s.log.last; w.seen++ {
		d := w.s.log.ring[(w.seen+1)%uint64(len(w.s.log.ring))]
		if d.Change == wire.ChangeFlush {
			w.flushes = append(w.flushes, flushing{w.seen + 1, call})
		}
		for key := range w.keys {
			if d.Change == wire.ChangeGone && w.names[d.Entry.Fingerprint] == key && w.known(d.Entry.Fingerprint) {
				w.log(99, call, simOp{key: key, lost: true})
			}
		}
	}
	w.flushes = slices.DeleteFunc(w.flushes, func(f flushing) bool {
		if !w.flushed(f.seq) {
			return false
		}
		for key := range w.keys {
			w.log(99, f.call, simOp{key: key, lost: true})
		}
		return true
	})
}

// flushed reports whether a flush is over. A server that knows of no clients cannot wait for them.
func (w *world) flushed(seq uint64) bool {
	if w.unattached {
		return w.s.flushed.left == 0
	}
	return w.s.Flushed(seq) || w.unflushed
}

func (w *world) known(fingerprint uint64) bool { _, ok := w.names[fingerprint]; return ok }

func (w *world) log(client int, call int64, o simOp) {
	w.history = append(w.history, porcupine.Operation{ClientId: client, Input: o, Call: call, Return: w.stamp()})
}

// unknown writes down a change without a known end: it happened sometime, or at the end.
func (w *world) unknown(client uint64, call int64, o simOp) {
	w.history = append(w.history, porcupine.Operation{ClientId: int(client), Input: o, Call: call, Return: 1 << 60})
}

// tick is the server's own work, and load that no client reads: it fills the arena.
func (w *world) tick() {
	w.server(func() {
		w.s.Tick(uint64(w.now), 8)
		for range w.rng.IntN(3) {
			q := wire.Request{Request: kv.Request{Op: kv.OpSet, Key: fmt.Appendf(nil, "load%d", w.rng.IntN(300)), Value: make([]byte, 500+3500*w.rng.IntN(2))}}
			w.s.Do(uint64(w.now), &q)
		}
		for _, id := range w.s.Late(uint64(w.now), nil) {
			w.s.Detach(id)
			w.clients[id].cut()
		}
	})
	for _, c := range w.clients {
		c.pump()
	}
	w.after(1+w.rng.IntN(8), w.tick)
}

// simOp is one operation on a key, or its loss.
type simOp struct {
	key     int
	lost    bool
	write   bool
	add     bool
	unknown bool
	value   uint64 // written, or read; 0: there was none
}

// model is a register for each key, that may be lost.
var model = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		by := make([][]porcupine.Operation, simKeys)
		for _, o := range h {
			k := o.Input.(simOp).key
			by[k] = append(by[k], o)
		}
		return by
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		o, v := input.(simOp), state.(uint64)
		switch {
		case o.lost:
			return true, uint64(0)
		case o.add && o.unknown:
			return true, v + 1
		case o.add: // value is what it came to; without a counter it begins at 1
			return o.value == v+1, o.value
		case o.write:
			return true, o.value
		}
		return o.value == v, v
	},
}

// encode makes a value of a number: key 0 is a counter, the others are long enough to be
// torn, each with another length.
func encode(key int, v uint64) []byte {
	if key == 0 {
		return strconv.AppendUint(nil, v, 10)
	}
	b := make([]byte, 8+v*37%3000)
	for i := range b {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], v)
		b[i] = w[i%8]
	}
	return b
}

// decode is the number of a value, if it is whole.
func decode(key int, b []byte) (uint64, bool) {
	if key == 0 {
		return Number(b)
	}
	if len(b) < 8 {
		return 0, false
	}
	v := binary.LittleEndian.Uint64(b)
	return v, v < 1<<40 && string(encode(key, v)) == string(b)
}

// line is a cache line that a READ has yet to fetch.
type line struct {
	r    *read
	from int
}

type read struct {
	src, dst []byte
	left     int
	dead     bool // the queue pair is gone
	done     func(bytes []byte)
}

const cacheLine = 64

// post begins a READ.
func (w *world) post(src []byte, done func([]byte)) *read {
	w.reads++
	r := &read{src: src, dst: make([]byte, len(src)), done: done}
	for from := 0; from < len(src); from += cacheLine {
		for n := 1 + w.rng.IntN(8)/7; n > 0; n-- { // one in eight is fetched twice
			w.lines = append(w.lines, &line{r, from})
			r.left++
			w.after(w.rng.IntN(30), w.fetch)
		}
	}
	return r
}

// fetch carries out one of the lines that are to be fetched.
func (w *world) fetch() {
	if len(w.lines) == 0 {
		return
	}
	i, last := w.rng.IntN(len(w.lines)), len(w.lines)-1
	l := w.lines[i]
	w.lines[i], w.lines = w.lines[last], w.lines[:last]
	r := l.r
	if r.left--; !r.dead {
		copy(r.dst[l.from:min(l.from+cacheLine, len(r.dst))], r.src[l.from:])
	}
	if r.left == 0 {
		w.after(w.rng.IntN(3), func() {
			if r.dead {
				r.done(nil)
			} else {
				r.done(r.dst)
			}
		})
	}
}
