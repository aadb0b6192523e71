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
	"cmp"
	"errors"
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Services of a transport context.
const (
	Reliable     = iota // at most once, in any order
	Ordered             // at most once, in the order of sending
	NoRetransmit        // packets that are lost are reported, and not sent again
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

	Limit           uint32 // bytes of the longest message that the receiver accepts
	Unauthenticated bool   // the receiver has never responded
}

// Config of an engine. Zero values of durations stand for defaults.
type Config struct {
	session.Config
	Host Host
	// Silent, if not nil, is called when the way to a peer may lead nowhere: the peer has been
	// silent, or has heard nothing, for a quarter of PeerTimeout, and after each other quarter;
	// and when it greets again after a Welcome. It calls no method of the engine.
	Silent func(peer wire.Addr)

	Paths      int           // of one's own: 1 to MaxPaths
	MinTimeout time.Duration // floor of the timers of sub-flows
	Target     time.Duration // delay over the least that is no congestion
}

func (c *Config) defaults() {
	c.SetDefaults()
	c.Paths = cmp.Or(c.Paths, 1)
	c.Budget = cmp.Or(c.Budget, 1024)
	c.MinTimeout = cmp.Or(c.MinTimeout, 2*time.Millisecond)
	c.Target = cmp.Or(c.Target, 2*time.Millisecond)
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
	session.Sessions
	cfg Config

	each     time.Duration // that the device has a packet, of bursts
	anyEach  time.Duration // of all packets
	target   time.Duration // Config's Target, or longer
	ackDelay time.Duration // Config's AckDelay, or longer

	fragment int
	peers    []*peer // by slot
	chunk    []peer  // that are not in use yet
	latest   *peer   // that find returned: the messages of a stream are for one
	senders  senders

	messages   []message
	links      session.Links // of the messages
	flows      []*inflight
	networks   []*network
	masks      []*wire.Mask // empty ones
	assemblies Assemblies
	waiting    Waits

	packet wire.Packet // being decoded
	out    wire.Packet // being made

	result   Result // handed to the host; here, since it would escape elsewhere
	delivery Delivery
}

// New returns an engine.
func New(cfg Config) *Engine {
	cfg.defaults()
	e := &Engine{cfg: cfg, fragment: cfg.MTU - wire.Overhead, target: cfg.Target, ackDelay: cfg.AckDelay}
	e.Init(cfg.Config, session.Hooks{Make: e.makePeer, Unsettled: e.peerUnsettled, Tick: e.tick, End: e.end, Begin: e.begin, Establish: e.establish, Forget: e.forget})
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
	e.Expect(preparedPeers)
	e.peers = make([]*peer, 0, preparedPeers)
	e.messages = make([]message, 0, 64)
}

const preparedPeers = 4

// Fragment returns how many bytes of a message a packet has.
func (e *Engine) Fragment() int { return e.fragment }

const never = session.Never

// none is no index.
const none = session.None
