package own

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/internal/virtual"
)

// flaws are faults of the caller that the simulation has to find.
type flaws struct {
	unchecked    bool // what was READ counts without a check
	undropped    bool // a shard that is handed over keeps its record at the former owner
	unclosed     bool // changes of a closed shard are executed
	unpurged     bool // a shard that was taken over keeps its old records
	receipt      bool // times are those of receipt, not of sending
	revisionless bool // a takeover does not compare the key of the dead
	baseless     bool // transactions do not compare the placement
}

const (
	ttl    = 2 * time.Second
	shards = 4
	drops  = 64
	quiet  = 24 * time.Second // then faults end
	length = 50 * time.Second
)

// worse is the configuration of simulations: clocks drift far more than crystals, so that what depends on the
// bound shows.
var worse = Config{TTL: ttl, Drift: 20}

// world is servers, clients and etcd in virtual time. The same seed does the same again.
type world struct {
	virtual.World
	flaws
	rng     *rand.Rand
	hosts   []*host // of the servers, then of the clients
	servers []*simServer
	boots   []uint64
	clients []*simClient
	etcd    etcd
	cuts    map[[2]int]time.Duration // until then no message gets from one host to another
	rough   bool                     // messages are lost, late and repeated, and clients ask any server
	history []op

	takeovers, successions, joins, moves, promised, hits, calls, sets, refused, lost int
}

// host has the clock of a server or client.
type host struct {
	rate                float64
	offset, lost        time.Duration
	stalled, stallEnd   time.Duration // the clock stands still between these
	frozen              time.Duration // until then nothing runs
	stallsAgainNotUntil time.Duration
}

// etcd is a register with revisions.
type etcd struct {
	placement *place.Placement
	beats     map[place.Life]int64
	revision  int64
	lost      time.Duration // until then it has no majority
}

// where etcd is among the hosts.
const atEtcd = -1

// op is an operation of a client on the key of a shard.
type op struct {
	shard     int
	call, end time.Duration
	value     value
	what      string
}

// value is a version of a key's record. Records are numbered in the epoch that made them, from
// 1; 0 is that records before that epoch are lost. Epochs are those of a shard times drops, and how often its owner has
// dropped the record in that epoch.
type value struct {
	epoch, seq uint32
	alive      bool
}

func (v value) less(o value) bool { return v.epoch < o.epoch || v.epoch == o.epoch && v.seq < o.seq }

func newWorld(seed uint64, f flaws, servers, clients int, rough bool) *world {
	w := &world{flaws: f, rng: rand.New(rand.NewPCG(seed, 1)), cuts: make(map[[2]int]time.Duration), rough: rough}
	for range servers + clients {
		w.hosts = append(w.hosts, &host{
			rate:   1 + (w.rng.Float64()-.5)*.97/float64(worse.Drift),
			offset: time.Duration(w.rng.Int64N(1 << 40)),
		})
	}
	w.servers, w.boots = make([]*simServer, servers), make([]uint64, servers)
	first := place.Server{Life: place.Life{ID: idOf(0), Boot: 1}, Address: "a:1", Weight: 1}
	w.etcd = etcd{placement: place.New([16]byte{1}, shards, first), beats: make(map[place.Life]int64)}
	for i := range servers {
		w.start(i)
	}
	for i := range clients {
		w.clients = append(w.clients, newSimClient(w, i))
	}
	return w
}

func idOf(host int) string        { return fmt.Sprint("h", host) }
func hostOf(life place.Life) int  { return int(life.ID[1] - '0') }
func (w *world) any(n int) int    { return w.rng.IntN(n) }
func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }
func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d)))
}

// clock returns what the clock of a host shows.
func (w *world) clock(i int) time.Duration {
	h := w.hosts[i]
	t := w.Now
	if t < h.stallEnd {
		t = h.stalled
	}
	return h.offset + time.Duration(float64(t-h.lost)*h.rate)
}

// stall stops a host and its clock for a twentieth of a TTL at most.
func (w *world) stall(i int) {
	h, d := w.hosts[i], w.upTo(ttl/20*97/100)
	if w.Now < h.stallsAgainNotUntil {
		return
	}
	h.stalled, h.stallEnd, h.stallsAgainNotUntil = w.Now, w.Now+d, w.Now+d+ttl*11/10
	h.frozen = max(h.frozen, h.stallEnd)
	w.After(d, func() { h.lost += d })
}

// freeze is SIGSTOP: the clock goes on, and so does the device.
func (w *world) freeze(i int, d time.Duration) {
	w.hosts[i].frozen = max(w.hosts[i].frozen, w.Now+d)
}

// on does something at a host when it is not frozen.
func (w *world) on(i int, do func()) {
	if h := w.hosts[i]; h.frozen > w.Now {
		w.After(h.frozen-w.Now+w.upTo(time.Millisecond), func() { w.on(i, do) })
		return
	}
	do()
}

// cut keeps messages from one host to another.
func (w *world) cut(from, to int, d time.Duration) {
	k := [2]int{from, to}
	w.cuts[k] = max(w.cuts[k], w.Now+d)
}

func (w *world) isCut(from, to int) bool { return w.Now < w.cuts[[2]int{from, to}] }

// send carries a message between hosts, or from and to etcd.
func (w *world) send(from, to int, do func()) {
	if w.rough && w.oneIn(100) {
		return
	}
	copies := 1
	if w.rough && w.oneIn(50) {
		copies = 2
	}
	for range copies {
		d := 50*time.Microsecond + w.upTo(2*time.Millisecond)
		if w.rough && w.oneIn(20) {
			d += w.upTo(1500 * time.Millisecond)
		}
		if w.rough && w.oneIn(100) {
			d += w.upTo(8 * time.Second)
		}
		w.After(d, func() {
			switch {
			case w.isCut(from, to):
			case to == atEtcd:
				do()
			default:
				w.on(to, do)
			}
		})
	}
}

// transact carries out a transaction: what it does and then what it reads, at one moment. Many of those that
// are slow wait on their way, long after they were given up.
func (w *world) transact(from int, slow bool, do func(), done func(View)) {
	if slow && w.rough && w.oneIn(3) {
		d := w.upTo(6 * time.Second)
		w.After(d, func() { w.transact(from, false, do, done) })
		return
	}
	w.send(from, atEtcd, func() { w.carryOut(from, do, done) })
}

func (w *world) carryOut(from int, do func(), done func(View)) {
	if w.Now < w.etcd.lost {
		if w.oneIn(2) {
			w.After(w.etcd.lost-w.Now+w.upTo(time.Second), func() { w.carryOut(from, do, done) })
		}
		return
	}
	do()
	v := View{w.etcd.placement, maps.Clone(w.etcd.beats)}
	w.send(atEtcd, from, func() { done(v) })
}

// replace writes a placement if that is still the one that was read.
func (w *world) replace(read, next *place.Placement) bool {
	if w.etcd.placement.Epoch != read.Epoch && !w.baseless {
		return false
	}
	if w.baseless {
		copied := *next
		copied.Epoch = w.etcd.placement.Epoch + 1
		next = &copied
	}
	w.etcd.placement = next
	return true
}

// put writes the key of a life, of which servers hear that watch etcd.
func (w *world) put(life place.Life) {
	w.etcd.revision++
	revision := w.etcd.revision
	w.etcd.beats[life] = revision
	for _, s := range w.servers {
		w.send(atEtcd, s.host, s.on(func() { s.m.Saw(life, revision, s.now()) }))
	}
}

// start begins another life of a server.
func (w *world) start(i int) {
	w.boots[i]++
	s := &simServer{w: w, host: i, life: place.Life{ID: idOf(i), Boot: w.boots[i]}, alive: true, told: make(map[int]uint32)}
	s.m = NewServer(worse, s.life, w.clock(i))
	w.servers[i] = s
	w.on(i, func() { s.beat(); s.tell() })
}

// crash ends a life. Its memory is gone; the next one begins later.
func (w *world) crash(i int, pause time.Duration) {
	s := w.servers[i]
	if !s.alive {
		return
	}
	s.alive = false
	w.After(pause, func() { w.on(i, func() { w.start(i) }) })
}

// check reports whether the history of each key is linearizable: what an operation returns is at least what any
// operation returned that had ended before it began. Versions are unique, so that is enough.
func (w *world) check() error {
	for shard := range shards {
		var ops []op
		for _, o := range w.history {
			if o.shard == shard {
				ops = append(ops, o)
			}
		}
		byEnd := slices.SortedStableFunc(slices.Values(ops), func(a, b op) int { return int(a.end - b.end) })
		byCall := slices.SortedStableFunc(slices.Values(ops), func(a, b op) int { return int(a.call - b.call) })
		var newest op
		for _, o := range byCall {
			for len(byEnd) > 0 && byEnd[0].end < o.call {
				if newest.value.less(byEnd[0].value) {
					newest = byEnd[0]
				}
				byEnd = byEnd[1:]
			}
			if o.value.less(newest.value) {
				return fmt.Errorf("%s of shard %d from %v to %v has %+v, and %s that ended at %v had %+v",
					o.what, o.shard, o.call, o.end, o.value, newest.what, newest.end, newest.value)
			}
		}
	}
	return nil
}
