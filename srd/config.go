package srd

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/verbs"
)

// Config configures an endpoint. PD is required; the rest may be zero.
type Config struct {
	PD  *verbs.PD
	GID verbs.GIDEntry // local address; zero means what an empty [verbs.GIDQuery] finds

	// Paths is the number of source queue pairs, at most 16; 0 means 8. Each is a path
	// of its own where routers choose by the UDP source port. EFA has one queue pair,
	// and chooses paths itself.
	Paths int
	// QKey is the queue key of the deployment; 0 means [verbs.DefaultQKey], and on EFA a
	// random one. It is a filter, not a secret.
	QKey uint32
	// Key is the secret key of the deployment, 16 bytes. With it, a first message of up to
	// 900 bytes goes with the first packet (not on EFA), and greetings of unauthenticated peers get no
	// reply.
	// Without it, unauthenticated peers first show that they receive at the address they name.
	Key []byte

	Receives   int // packets that may arrive before the endpoint looks at them; 0 means 512
	Buffers    int // bytes of memory for messages that arrive, until they are released; 0 means 8 MiB
	MaxMessage int // bytes of the longest message that is accepted, at most Buffers, which peers are told; 0 means 1 MiB, or Buffers
	MaxPeers   int // 0 means 65,536; without Key one host has a sixteenth of them, at least 16
	// OnMessage, if not nil, is called with each message, one at a time, by a goroutine
	// of the endpoint. The message is released when OnMessage returns or panics, which is
	// logged. OnMessage may send, but must not close the endpoint, since Close waits for it.
	// While it runs, peers get no responses, unless another goroutine waits in Receive, Send or Wait.
	OnMessage func(*Message)

	// PeerTimeout is the time without progress after which a peer is unresponsive, from a
	// microsecond to an hour; 0 means 5 s. Peers may have others: each is told in the greeting
	// for how long it is remembered.
	PeerTimeout time.Duration

	// PollFor is for how long a goroutine that waits polls for packets before it parks, while other
	// goroutines run, as in [verbs.CQConfig]; 0 means a few times. A response that a parked
	// goroutine is woken for takes several times as long. It takes the time of idle CPUs.
	PollFor time.Duration

	// Monitor is the path of a unix socket at which the endpoint reports its counters,
	// peers and paths, to "rdmactl srd" for instance; empty means none.
	Monitor string

	// Logger is told of paths that fail, addresses that change, refused greetings and panics of
	// OnMessage; nil: silent. Lines of one cause come every ten seconds at most.
	Logger *slog.Logger

	ackDelay, minTimeout time.Duration // the engine's, if not 0; tests set them
}

// complete replaces zero values by defaults, and returns an error if a value makes no sense.
func (c *Config) complete() error {
	c.Paths = cmp.Or(c.Paths, 8)
	c.Receives = cmp.Or(c.Receives, 512)
	c.Buffers = cmp.Or(c.Buffers, 8<<20)
	c.MaxMessage = cmp.Or(c.MaxMessage, min(c.Buffers, 1<<20))
	c.PeerTimeout = cmp.Or(c.PeerTimeout, session.DefaultPeerTimeout)
	c.ackDelay = cmp.Or(c.ackDelay, session.DefaultAckDelay)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.PD == nil:
		return fmt.Errorf("%w: no PD", verbs.ErrAttributes)
	case c.Paths < 1 || c.Paths > engine.MaxPaths:
		return fmt.Errorf("%w: %d paths", verbs.ErrAttributes, c.Paths)
	case c.Receives < 16, c.Buffers < 1<<16, c.MaxMessage < 1, c.MaxMessage > c.Buffers, c.MaxPeers < 0:
		return fmt.Errorf("%w: Receives %d, Buffers %d, MaxMessage %d (at most Buffers), MaxPeers %d", verbs.ErrAttributes,
			c.Receives, c.Buffers, c.MaxMessage, c.MaxPeers)
	case c.PeerTimeout < time.Microsecond || c.PeerTimeout > time.Hour:
		return fmt.Errorf("%w: PeerTimeout %v; it is from a microsecond to an hour", verbs.ErrAttributes, c.PeerTimeout)
	case c.PollFor < 0:
		return fmt.Errorf("%w: PollFor %v", verbs.ErrAttributes, c.PollFor)
	case c.Key != nil && len(c.Key) != 16:
		return fmt.Errorf("%w: a key of %d bytes; it has 16", verbs.ErrAttributes, len(c.Key))
	}
	return nil
}
