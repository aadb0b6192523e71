// Package session has what the two machines of reliable datagrams have in common: the clock of
// an endpoint, its peers with their timers, and the greetings by which sessions begin. A machine
// embeds [Sessions], and its peers embed [Peer]. Like the machines, it has no I/O, clock,
// goroutine or lock.
package session

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Config is the part of a machine's configuration that both have. Zero values of durations, and of
// numbers but Budget, stand for defaults.
type Config struct {
	Addr wire.Addr
	Wall uint64               // wall clock in nanoseconds, now; also the epoch
	Raw  time.Duration        // now, by the clock of Advance
	Boot func() time.Duration // returns the time by a clock that runs while the host is suspended; nil: that of Advance
	Seed [32]byte
	Key  *wire.Key // of the deployment: a peer that has it needs no cookie
	MTU  int       // bytes of a packet, headers included

	MaxPeers    int
	MaxMessage  int           // bytes of the longest message that is received
	Budget      int           // packets that all peers may have under way towards this one
	First       int           // packets before the first grant
	AckDelay    time.Duration // how long a response waits for others
	PeerTimeout time.Duration // without progress, after which a peer is unresponsive
	EvictAge    time.Duration // how long a silent peer is remembered at least
}

// Defaults of Config.
const (
	DefaultAckDelay    = 500 * time.Microsecond
	DefaultPeerTimeout = 5 * time.Second
)

// SetDefaults replaces zero values by defaults.
func (c *Config) SetDefaults() {
	c.AckDelay = cmp.Or(c.AckDelay, DefaultAckDelay)
	c.PeerTimeout = cmp.Or(c.PeerTimeout, DefaultPeerTimeout)
	c.EvictAge = cmp.Or(c.EvictAge, 4*c.PeerTimeout)
	c.MTU = cmp.Or(c.MTU, 4096)
	c.MaxPeers = cmp.Or(c.MaxPeers, 1<<16)
	c.MaxMessage = cmp.Or(c.MaxMessage, 1<<20)
	c.First = cmp.Or(c.First, 4)
}

// Hooks are the functions of a machine that are called when something happens to a peer.
type Hooks struct {
	// Make gives a new peer its place, by its slot, and returns it there.
	Make func(p Peer) *Peer
	// Unsettled reports whether a message to a peer is not settled.
	Unsettled func(p *Peer) bool
	// Tick does what is due for a peer, and returns the time when it is to be called again, or
	// Never.
	Tick func(p *Peer) time.Duration
	// End ends what is under way with a peer that begins a session as the incarnation epoch. Limits
	// are its new ones.
	End func(p *Peer, epoch uint64, limits *wire.Limits)
	// Begin counts anew for a session that has begun. p.Limits are those of the peer.
	Begin func(p *Peer)
	// Establish goes on in a session that has begun, or was confirmed.
	Establish func(p *Peer)
	// Forget frees what is kept of a peer that is idle.
	Forget func(p *Peer)
}

// Sessions are the peers of an endpoint, and its sessions with them.
type Sessions struct {
	Now   time.Duration // advances with the time passed to Advance, but does not jump
	Rng   *rand.Rand
	Stats Stats

	cfg     Config
	hooks   Hooks
	raw     time.Duration
	wait    time.Duration // until when the last call of Wait let the driver sleep
	intact  time.Duration // by Config.Boot: since when no peer was forgotten
	lastOwn uint64        // stamp of one's own last greeting

	Senders []*Peer // peers that send now
	look    int     // at one of them
	peers   []*Peer // by slot
	table
	timers  timers
	ready   queue // peers that may have something to send
	replies replyQueue
}

// Stats are those of package srd, which says what the fields are.
type Stats struct {
	Sent, Received, Retransmitted, Timeouts, Probes, Responses uint64
	Duplicates, Beyond, Delivered, Refused                     uint64
	Sessions, Forgotten, Retired, Revived, Broken              uint64
	Malformed, WrongToken, WrongSource, WrongCookie, WrongKey  uint64
	OldEpoch, Bogus, Resets, Challenges, Unanswered            uint64
}

// Init prepares the sessions of a machine. cfg has its defaults.
func (s *Sessions) Init(cfg Config, hooks Hooks) {
	s.cfg, s.hooks, s.raw = cfg, hooks, cfg.Raw
	if cfg.Boot == nil {
		s.cfg.Boot = func() time.Duration { return s.raw }
	}
	s.intact = s.cfg.Boot()
	s.Rng = rand.New(rand.NewChaCha8(cfg.Seed))
	s.cfg.MaxPeers = min(cfg.MaxPeers, maxSlots)
	s.slots, s.secret, s.forgot = make(map[wire.Addr]uint32), wire.Key{s.Rng.Uint64(), s.Rng.Uint64()}, cfg.Wall
	s.replies.credit = ReplyBurst
}

// Count returns the counters so far.
func (s *Sessions) Count() *Stats { return &s.Stats }

// Advance sets the time, by a clock that may stop, jump and go back: the machine's own time
// advances by at most the time that Wait let the driver sleep, and a little more. It is called
// before the events of that time are handed in.
func (s *Sessions) Advance(raw time.Duration) {
	passed := max(raw-s.raw, 0)
	s.raw = raw
	// A machine that stood still has heard no peer: that does not show that peers are silent.
	s.Now += min(passed, max(s.wait-s.Now, 0)+s.cfg.PeerTimeout/16)
	for len(s.timers) > 0 && s.timers[0].WakeAt <= s.Now {
		s.tick(s.timers[0])
	}
}

// Wait returns how long there is nothing to do, unless something arrives.
func (s *Sessions) Wait() time.Duration {
	if s.ready.head != nil || s.Replies() {
		s.wait = s.Now
		return 0
	}
	s.wait = Never
	if len(s.timers) > 0 {
		s.wait = s.timers[0].WakeAt
	}
	return max(0, s.wait-s.Now)
}

// Never is later than all times.
const Never = time.Duration(1 << 62)

// Boot returns the time by Config.Boot.
func (s *Sessions) Boot() time.Duration { return s.cfg.Boot() }

// Stamp returns the time in packets, in microseconds.
func (s *Sessions) Stamp() uint32 { return uint32(s.Now / time.Microsecond) }

// Wall returns the wall clock in nanoseconds, as far as it is known.
func (s *Sessions) Wall() uint64 { return s.cfg.Wall + uint64(max(0, s.raw-s.cfg.Raw)) }
