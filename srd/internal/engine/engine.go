// Package engine is the state machine of reliable datagrams: what an endpoint knows of
// its peers, what it sends next, and what becomes of each message. It has no I/O, clock,
// goroutine or lock. Its driver passes the time and the packets that arrived, asks for packets
// to send, and is called back with messages and statuses:
//
//	e.Advance(now)
//	e.Receive(source, packet)   // for each that arrived: one response for all of them
//	e.Send(to, message)
//	for e.Next(headers, &out) { // until nothing may be sent, or there is no room
//		post(out)
//	}
//	sleep(e.Wait())
//
// A transport context is a peer and a service: each has a packet flow of
// its own (send.go, receive.go), and all flows to a peer share its paths (path.go).
package engine

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/srd/internal/hosts"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Services of a transport context.
const (
	Reliable  = iota // at most once, in any order
	Ordered          // at most once, in the order of sending
	Reporting        // packets that are lost are reported, and not sent again
)

// Status is what became of a message, or of a part of it.
type Status uint8

const (
	Delivered    Status = 1 + iota
	Refused             // the receiver had no buffer for it
	Retransmit          // lost: the application may send it again
	Unresponsive        // the peer does not respond, or has restarted: it may have been delivered
	Cancelled           // given up before it was delivered
	TooLarge            // longer than the receiver accepts
	PathMTU             // the path loses its packets, for they are long
)

// Host is the driver of the engine. Its methods are called from inside the engine's, and
// call none of them.
type Host interface {
	// Room returns memory for a message of several packets, or one that came early; nil
	// if there is none.
	Room(size int) []byte
	// Soon reports whether there may soon be memory for a message for which there is none.
	Soon(size int) bool
	// Deliver hands over a message, and reports whether it was taken. If owned is set,
	// d.Bytes came from Room, and the message is taken in any case; otherwise d.Bytes
	// is valid until Deliver returns.
	Deliver(d *Delivery, owned bool) bool
	// Drop gives memory from Room back.
	Drop(b []byte)
	// Settled reports the result of a message, once. r is valid until it returns, as is
	// Deliver's d.
	Settled(r *Result)
	// PartSettled reports the status of each part of a message that was sent with Parts.
	PartSettled(tag uint64, part int, s Status)
	// Pressure returns the share of the memory for messages that is in use, from 0 to 255.
	Pressure() uint8
}

// Delivery is a message that arrived.
type Delivery struct {
	From    wire.Addr
	Service uint8
	Bytes   []byte
}

// Message is what is to be sent.
type Message struct {
	Tag     uint64 // for Settled
	Service uint8
	Len     int
	Now     bool // the program waits for the status
	Parts   bool // report each part, too
}

// Result is what became of a message.
type Result struct {
	Tag     uint64
	Status  Status
	Part    int // the first part in the way, unless it was delivered
	Parts   int // that were sent
	Refused int // of them, those that the receiver refused

	Limit    uint32 // bytes of the longest message that the receiver accepts
	Stranger bool   // the receiver has never responded
}

// DefaultAckDelay is how long a response waits for others unless Config says so.
const DefaultAckDelay = 500 * time.Microsecond

// DefaultPeerTimeout is after how long without progress a peer is unresponsive unless Config
// says so.
const DefaultPeerTimeout = 5 * time.Second

// Config of an engine. Zero values of durations stand for defaults.
type Config struct {
	Addr wire.Addr
	Host Host
	// Silent, if not nil, is called when the way to a peer may lead nowhere: the peer has been
	// silent, or has heard nothing, for a quarter of PeerTimeout, and after each other quarter;
	// and when it greets again after a Welcome. It calls no method of the engine.
	Silent func(peer wire.Addr)

	Wall  uint64               // wall clock in nanoseconds, now; also the epoch
	Raw   time.Duration        // now, by the clock of Advance
	Boot  func() time.Duration // returns the time by a clock that runs while the host is suspended; nil: that of Advance
	Seed  [32]byte
	Key   *wire.Key // of the deployment: data goes with the first packet
	Paths int       // of one's own: 1 to MaxPaths
	MTU   int       // bytes of a packet, headers included

	MaxPeers    int
	MaxMessage  int           // bytes of the longest message that is received
	Budget      int           // packets that all peers may have under way towards this one
	First       int           // packets before the first grant
	MinTimeout  time.Duration // floor of the timers of sub-flows
	AckDelay    time.Duration // how long a response waits for others
	Target      time.Duration // delay over the least that is no congestion
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
	set(&c.MinTimeout, 2*time.Millisecond)
	set(&c.AckDelay, DefaultAckDelay)
	set(&c.Target, 2*time.Millisecond)
	set(&c.PeerTimeout, DefaultPeerTimeout)
	set(&c.EvictAge, 4*c.PeerTimeout)
	number(&c.Paths, 1)
	number(&c.MTU, 4096)
	number(&c.MaxPeers, 1<<16)
	number(&c.MaxMessage, 1<<20)
	number(&c.Budget, 1024)
	number(&c.First, 4)
}

// MaxPaths is how many paths an endpoint has at most.
const MaxPaths = 16

// Errors of Send.
var (
	ErrService = errors.New("no such service")
	ErrPeers   = errors.New("too many peers at once")
)

// TooLargeError is the error of Send for a message that is longer than the receiver accepts, which
// is Limit bytes.
type TooLargeError struct{ Limit uint32 }

func (TooLargeError) Error() string { return "the receiver accepts no message of that length" }

// Engine is one endpoint.
type Engine struct {
	cfg  Config
	rng  *rand.Rand
	now  time.Duration // advances with raw, but does not jump
	raw  time.Duration
	wait time.Duration // until when the last call of Wait let the driver sleep

	each     time.Duration // that the device has a packet, of bursts
	anyEach  time.Duration // of all packets
	target   time.Duration // Config's Target, or longer
	ackDelay time.Duration // Config's AckDelay, or longer

	fragment int
	peers    []*peer
	chunk    []peer // that are not in use yet
	latest   *peer  // that find returned: the messages of a stream are for one
	hosts    *hosts.Table
	intact   time.Duration // by Config.Boot: since when no peer was forgotten
	lastOwn  uint64        // stamp of one's own last greeting

	timers    []uint32 // peers: a heap by wakeAt
	ready     queue    // peers that may have something to send
	strangers Strangers
	senders   senders

	messages   []message
	unused     uint32 // the first free message
	flows      []*inflight
	networks   []*network
	masks      []*wire.Mask // empty ones
	assemblies *assembly
	waiting    Waits

	packet wire.Packet // being decoded
	out    wire.Packet // being made
	Stats  Stats

	result   Result // handed to the host; here, since it would escape elsewhere
	delivery Delivery
}

// Stats are counters; package srd documents them.
type Stats struct {
	Sent, Received      uint64
	Retransmitted       uint64
	Timeouts, Probes    uint64
	Responses           uint64
	Duplicates, Beyond  uint64
	Delivered, Refused  uint64
	Sessions, Forgotten uint64
	Retired, Revived    uint64
	Broken              uint64 // counted by the driver

	Malformed, WrongToken, WrongSource, WrongCookie, WrongKey uint64
	OldEpoch, Bogus                                           uint64
	Resets, Challenges, Unanswered                            uint64
}

// New returns an engine.
func New(cfg Config) *Engine {
	cfg.defaults()
	e := &Engine{cfg: cfg, rng: rand.New(rand.NewChaCha8(cfg.Seed)), unused: none}
	e.hosts = hosts.New(hosts.Config{Secret: wire.Key{e.rng.Uint64(), e.rng.Uint64()}, Trusted: cfg.Key != nil, MaxPeers: cfg.MaxPeers, EvictAge: cfg.EvictAge, Born: cfg.Wall,
		Idle: e.forgettable, Forget: func(slot uint32) { e.forget(e.peers[slot]) }})
	e.fragment = cfg.MTU - wire.Overhead
	e.raw, e.target, e.ackDelay = cfg.Raw, cfg.Target, cfg.AckDelay
	if e.cfg.Boot == nil {
		e.cfg.Boot = func() time.Duration { return e.raw }
	}
	e.intact = e.cfg.Boot()
	e.ready = queue{none, none}
	e.strangers.Begin()
	e.prepare()
	return e
}

// prepare allocates what the first messages need, and writes to it: the page faults of unused
// memory cost a message more than all its processing.
func (e *Engine) prepare() {
	e.newChunk()
	for range preparedPeers {
		n, l := new(network), newInflight()
		n.begin(0)
		e.networks, e.flows = append(e.networks, n), append(e.flows, l)
	}
	e.peers = make([]*peer, 0, preparedPeers)
	e.messages = make([]message, 0, 64)
}

const preparedPeers = 4

// Fragment returns how many bytes of a message a packet has.
func (e *Engine) Fragment() int { return e.fragment }

// Epoch returns the number that distinguishes this incarnation from others.
func (e *Engine) Epoch() uint64 { return e.cfg.Wall }

// Advance sets the time, by a clock that may stop, jump and go back: the engine's own time
// advances by at most the time that Wait let the driver sleep, and a little more. It is called
// before the events of that time are handed in.
func (e *Engine) Advance(raw time.Duration) {
	passed := raw - e.raw
	e.raw = raw
	if passed > 0 {
		// A machine that stood still has heard no peer: that does not show that peers are silent.
		e.now += min(passed, max(e.wait-e.now, 0)+e.cfg.PeerTimeout/16)
	}
	for len(e.timers) > 0 {
		p := e.peers[e.timers[0]]
		if p.wakeAt > e.now {
			break
		}
		e.tick(p)
	}
}

// Wait returns how long there is nothing to do, unless something arrives.
func (e *Engine) Wait() time.Duration {
	if e.ready.head != none || !e.strangers.Empty() {
		e.wait = e.now
		return 0
	}
	e.wait = never
	if len(e.timers) > 0 {
		e.wait = e.peers[e.timers[0]].wakeAt
	}
	return max(0, e.wait-e.now)
}

const never = time.Duration(1 << 62)

// none is no index.
const none = ^uint32(0)

// stamp returns the time in packets, in microseconds.
func (e *Engine) stamp() uint32 { return uint32(e.now / time.Microsecond) }

// wall returns the wall clock in nanoseconds, as far as it is known.
func (e *Engine) wall() uint64 { return e.cfg.Wall + uint64(max(0, e.raw-e.cfg.Raw)) }
