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
	"cmp"
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
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
	session.Config
	Host       engine.Host
	Slots      int           // packets that the driver may have under way
	RetryDelay time.Duration // before what the peer had no buffer for is sent again; it doubles
}

func (c *Config) defaults() {
	c.SetDefaults()
	c.Slots = cmp.Or(c.Slots, 256)
	c.Budget = cmp.Or(c.Budget, 384)
	c.RetryDelay = cmp.Or(c.RetryDelay, time.Millisecond)
}

// Machine is one endpoint.
type Machine struct {
	session.Sessions
	cfg Config

	fragment int
	peers    []*peer // by slot
	lives    uint32  // of sessions
	coming   int     // packets that may come of all senders

	messages   []message
	links      session.Links // of the messages
	packets    []packet      // by slot
	windows    []*txWindow
	assemblies engine.Assemblies
	waiting    engine.Waits

	packet  wire.Packet // being decoded
	out     wire.Packet // being made
	mislaid uint64      // messages that were not where the device said, perhaps

	result   engine.Result // handed to the host; here, since it would escape elsewhere
	delivery engine.Delivery
}

// packet is what the device has under way in a slot.
type packet struct {
	peer, life uint32 // life 0: of an unauthenticated peer, or nothing
	message    uint32 // or none
	gen        uint32
	seq, index uint32
	service    uint8
	part       bool
	cancel     bool
	welcome    bool
	credit     bool
	answers    uint8 // service of the response, and 1; or 0
}

const never = session.Never

// none is no index.
const none = session.None

// New returns a machine.
func New(cfg Config) *Machine {
	cfg.defaults()
	m := &Machine{cfg: cfg, fragment: min(cfg.MTU-wire.Overhead, 1<<16-1), packets: make([]packet, cfg.Slots)}
	m.Init(cfg.Config, session.Hooks{Make: m.makePeer, Unsettled: m.peerUnsettled, Tick: m.tick, End: m.end, Begin: m.begin, Establish: m.establish, Forget: m.forget})
	return m
}

// Fragment returns how many bytes of a message a packet has.
func (m *Machine) Fragment() int { return m.fragment }

// Peers calls f for each peer. f must not keep its argument.
func (m *Machine) Peers(f func(*engine.PeerStats)) {
	for _, p := range m.peers {
		if p.State != session.Vacant {
			f(&engine.PeerStats{Addr: p.Addr, Established: p.State == session.Established, UnderWay: p.underWay(), Grant: int(p.grant)})
		}
	}
}
