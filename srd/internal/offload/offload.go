// Package offload is the state machine of reliable datagrams over a device that delivers
// packets by itself: at most once, in any order, with a completion for each, as EFA's SRD
// does. What is left to do is fragmentation and reassembly, order, credit, sessions, and
// the receiver's result for each message. Like package engine, it has no I/O, clock, goroutine
// or lock, and it shares that package's terms:
//
//	m.Advance(now)
//	m.Receive(source, packet)       // for each that arrived
//	m.Send(to, message)
//	for m.Next(slot, header, &out) { // until nothing may be sent, or there is no slot
//		post(out)
//	}
//	m.Completed(slot, outcome)      // for each that was posted
//	sleep(m.Wait())
//
// Messages of a flow are numbered, not their packets: the device loses none, so one result
// for each message is enough. A packet that the device gave up is sent again, and the
// receiver knows its number.
package offload

import (
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/hosts"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Outcome is the result that the device reports for a packet.
type Outcome uint8

const (
	Landed   Outcome = iota // it is in a buffer of the peer
	NotReady                // it is not: the peer had none
	Gone                    // it is not: there is no such queue pair
	Silent                  // perhaps it is: the peer's device did not respond for as long as ours tries
	Failed                  // perhaps it is
)

// Config of a machine. Zero values of durations stand for defaults.
type Config struct {
	Addr  wire.Addr
	Host  engine.Host
	Wall  uint64        // wall clock in nanoseconds, now; also the epoch
	Raw   time.Duration // now, by the clock of Advance
	Seed  [32]byte
	Key   *wire.Key // of the deployment: peers that have it need no cookie
	MTU   int       // bytes of a packet, headers included
	Slots int       // packets that the driver may have under way

	MaxPeers    int
	MaxMessage  int           // bytes of the longest message that is received
	Budget      int           // packets that all peers may have under way towards this one
	First       int           // packets before the first grant
	RetryDelay  time.Duration // before what the peer had no buffer for is sent again; it doubles
	AckDelay    time.Duration // how long a response waits for others
	PeerTimeout time.Duration // without progress, after which a peer is unresponsive
	EvictAge    time.Duration // how long a silent peer is remembered at least
}

func (c *Config) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	number := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	set(&c.RetryDelay, time.Millisecond)
	set(&c.AckDelay, engine.DefaultAckDelay)
	set(&c.PeerTimeout, engine.DefaultPeerTimeout)
	set(&c.EvictAge, 4*c.PeerTimeout)
	number(&c.MTU, 4096)
	number(&c.Slots, 256)
	number(&c.MaxPeers, 1<<16)
	number(&c.MaxMessage, 1<<20)
	number(&c.Budget, 384)
	number(&c.First, 4)
}

// Machine is one endpoint.
type Machine struct {
	cfg  Config
	rng  *rand.Rand
	now  time.Duration // advances with raw, but does not jump
	raw  time.Duration
	wait time.Duration // until when the last call of Wait let the driver sleep

	fragment int
	peers    []*peer
	hosts    *hosts.Table
	lastOwn  uint64 // stamp of one's own last greeting
	lives    uint32 // of sessions

	timers    timers
	ready     queue // peers that may have something to send
	strangers engine.Strangers
	senders   []uint32 // peers that send now, among which receive memory is divided
	look      int      // at the senders
	coming    int      // packets that may come of all of them

	messages   []message
	unused     uint32   // the first free message
	packets    []packet // by slot
	windows    []*txWindow
	assemblies *assembly // that are not in use
	waiting    engine.Waits

	packet  wire.Packet // being decoded
	out     wire.Packet // being made
	Stats   engine.Stats
	mislaid uint64 // messages that were not where the device said, perhaps

	result   engine.Result // handed to the host; here, since it would escape elsewhere
	delivery engine.Delivery
}

// packet is what the device has under way in a slot.
type packet struct {
	peer, life uint32 // life 0: of a stranger, or nothing
	message    uint32 // or none
	gen        uint32
	seq, index uint32
	service    uint8
	part       bool
	cancel     bool
	hello      bool
	welcome    bool
	credit     bool
	answers    uint8 // service of the response, and 1; or 0
}

const never = time.Duration(1 << 62)

// none is no index.
const none = ^uint32(0)

// New returns a machine.
func New(cfg Config) *Machine {
	cfg.defaults()
	m := &Machine{cfg: cfg, rng: rand.New(rand.NewChaCha8(cfg.Seed)), unused: none}
	m.hosts = hosts.New(hosts.Config{Secret: wire.Key{m.rng.Uint64(), m.rng.Uint64()}, Trusted: cfg.Key != nil, MaxPeers: cfg.MaxPeers, EvictAge: cfg.EvictAge, Born: cfg.Wall,
		Idle: m.forgettable, Forget: func(slot uint32) { m.forget(m.peers[slot]) }})
	m.fragment = min(cfg.MTU-wire.Overhead, 1<<16-1)
	m.ready = queue{none, none}
	m.raw = cfg.Raw
	m.strangers.Begin()
	m.packets = make([]packet, cfg.Slots)
	return m
}

// Fragment returns how many bytes of a message a packet has.
func (m *Machine) Fragment() int { return m.fragment }

// Count returns the counters so far.
func (m *Machine) Count() *engine.Stats { return &m.Stats }

// Advance sets the time, by a clock that may stop, jump and go back: the machine's own time
// advances by at most the time that Wait let the driver sleep, and a little more. It is called
// before the events of that time are handed in.
func (m *Machine) Advance(raw time.Duration) {
	passed := raw - m.raw
	m.raw = raw
	if passed > 0 {
		// A machine that stood still has heard no peer: that does not show that peers are silent.
		m.now += min(passed, max(m.wait-m.now, 0)+m.cfg.PeerTimeout/16)
	}
	for len(m.timers) > 0 && m.timers[0].wakeAt <= m.now {
		m.tick(m.timers[0])
	}
}

// Wait returns how long there is nothing to do, unless something arrives.
func (m *Machine) Wait() time.Duration {
	if m.ready.head != none || !m.strangers.Empty() {
		m.wait = m.now
		return 0
	}
	m.wait = never
	if len(m.timers) > 0 {
		m.wait = m.timers[0].wakeAt
	}
	return max(0, m.wait-m.now)
}

// Peers calls f for each peer. f must not keep its argument.
func (m *Machine) Peers(f func(*engine.PeerStats)) {
	for _, p := range m.peers {
		if p.state != vacant {
			f(&engine.PeerStats{Addr: p.addr, Established: p.state == established, UnderWay: p.underWay(), Grant: int(p.grant)})
		}
	}
}

// stamp returns the time in packets, in microseconds.
func (m *Machine) stamp() uint32 { return uint32(m.now / time.Microsecond) }

// wall returns the wall clock in nanoseconds, as far as it is known.
func (m *Machine) wall() uint64 { return m.cfg.Wall + uint64(max(0, m.raw-m.cfg.Raw)) }
