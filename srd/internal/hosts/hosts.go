// Package hosts has the rules by which an endpoint admits and forgets peers: what a stranger
// shows before anything is kept of it, how many peers one host may have, and which peer makes
// room for another. Like the machines that use it, it has no I/O, clock, goroutine or lock.
package hosts

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Config of a table.
type Config struct {
	Secret   wire.Key // of cookies, and of the counters of hosts
	Trusted  bool     // peers have the deployment's key: one host may have all peers
	MaxPeers int
	EvictAge time.Duration // how long a silent peer is remembered at least
	Born     uint64        // wall clock in nanoseconds: a predecessor may have accepted greetings from before

	// Idle reports whether the peer in a slot, if there is one, may be forgotten.
	Idle func(slot uint32) bool
	// Forget ends the peer in a slot, and calls Remove.
	Forget func(slot uint32)
}

// Table has a slot for each peer. Without a key a cookie shows only that a stranger has its
// address, and one host could have all peers: the peers of each host are counted. Few hosts
// share a counter, by a keyed hash of their addresses.
type Table struct {
	cfg    Config
	slots  map[wire.Addr]uint32
	free   []uint32
	hosts  []uint16 // the counter of each slot's host
	counts [1024]uint32
	any    sweep // for a peer of any host
	own    sweep // for one of a certain host
	forgot uint64
}

// MaxSlots is how many slots a token can name.
const MaxSlots = 1 << 24

// New returns an empty table.
func New(cfg Config) *Table {
	cfg.MaxPeers = min(cfg.MaxPeers, MaxSlots)
	return &Table{cfg: cfg, slots: make(map[wire.Addr]uint32), forgot: cfg.Born}
}

// Len returns how many peers there are.
func (t *Table) Len() int { return len(t.slots) }

// Slot returns the slot of an address, and reports whether it has one.
func (t *Table) Slot(a wire.Addr) (slot uint32, ok bool) {
	slot, ok = t.slots[a]
	return slot, ok
}

// Share returns how many peers one host may have without a key.
func (t *Table) Share() int { return max(16, t.cfg.MaxPeers/16) }

func (t *Table) host(gid *[16]byte) uint16 {
	return uint16(wire.Hash(t.cfg.Secret, gid[:]) % uint64(len(t.counts)))
}

// Admits reports whether a host that greets may have another peer. An idle peer of a host that
// has its share makes room.
func (t *Table) Admits(gid [16]byte, now time.Duration) bool {
	host := t.host(&gid)
	if t.cfg.Trusted || int(t.counts[host]) < t.Share() {
		return true
	}
	return t.evict(&t.own, now, func(i uint32) bool { return t.hosts[i] == host && t.cfg.Idle(i) })
}

// Add gives a slot to an address that has none, and reports whether one was free. Slots are
// numbered from 0. An idle peer makes room if there are MaxPeers.
func (t *Table) Add(a wire.Addr, now time.Duration) (slot uint32, ok bool) {
	if len(t.free) == 0 && len(t.hosts) == t.cfg.MaxPeers && !t.evict(&t.any, now, t.cfg.Idle) {
		return 0, false
	}
	if n := len(t.free); n > 0 {
		slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		slot, t.hosts = uint32(len(t.hosts)), append(t.hosts, 0)
	}
	t.slots[a], t.hosts[slot] = slot, t.host(&a.GID)
	t.counts[t.hosts[slot]]++
	return slot, true
}

// Remove frees the slot of an address. stamp is that of its last greeting.
func (t *Table) Remove(a wire.Addr, stamp uint64) {
	slot := t.slots[a]
	delete(t.slots, a)
	t.counts[t.hosts[slot]]--
	t.free = append(t.free, slot)
	t.forgot = max(t.forgot, stamp)
}

func (t *Table) evict(s *sweep, now time.Duration, idle func(slot uint32) bool) bool {
	slot, ok := s.find(uint32(len(t.hosts)), now, t.cfg.EvictAge, idle)
	if ok {
		t.cfg.Forget(slot)
	}
	return ok
}

// Fresh reports whether a greeting that has the deployment's key is no replay of one that was
// forgotten. wall is the wall clock in nanoseconds.
func (t *Table) Fresh(g *wire.Greeting, wall uint64) bool {
	return g.Stamp > t.forgot && g.Stamp < wall+uint64(time.Hour)
}

// Cookie returns what a stranger has to show that it receives at its address. It holds for this
// period, a quarter of EvictAge, and the next one.
func (t *Table) Cookie(g *wire.Greeting, now time.Duration) uint64 { return t.cookie(g, t.period(now)) }

// Shows reports whether a greeting has its cookie.
func (t *Table) Shows(g *wire.Greeting, now time.Duration) bool {
	p := t.period(now)
	return g.Cookie == t.cookie(g, p) || g.Cookie == t.cookie(g, p-1)
}

func (t *Table) period(now time.Duration) uint64 { return uint64(now / (t.cfg.EvictAge / 4)) }

func (t *Table) cookie(g *wire.Greeting, period uint64) uint64 {
	var room [48]byte
	b := g.From.Append(room[:0])
	for _, v := range [...]uint64{g.Epoch, g.Token, period} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return wire.Hash(t.cfg.Secret, b)
}
