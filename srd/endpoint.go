package srd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/alarm"
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
	// 900 bytes goes with the first packet (not on EFA), and greetings of strangers get no
	// reply.
	// Without it, strangers first show that they receive at the address they name.
	Key []byte

	Receives   int // packets that may arrive before the endpoint looks at them; 0 means 512
	Buffers    int // bytes of memory for messages that arrive, until they are released; 0 means 8 MiB
	MaxMessage int // bytes of the longest message that is accepted, at most Buffers, which peers are told; 0 means 1 MiB, or Buffers
	MaxPeers   int // 0 means 65,536; without Key a sixteenth of them, or 16, may be of one host that greeted
	// OnMessage, if not nil, is called with each message, one at a time, by a goroutine
	// of the endpoint. The message is released when OnMessage returns or panics, which is
	// logged. OnMessage may send, but must not close the endpoint, since Close waits for it.
	// While it runs, peers get responses only if a call of the program waits.
	OnMessage func(*Message)

	// PeerTimeout is the time without progress after which a peer is unresponsive, from a
	// microsecond to an hour; 0 means 5 s. Peers may have others: each is told in the greeting
	// for how long it is remembered.
	PeerTimeout time.Duration

	// Monitor is the path of a unix socket at which the endpoint reports its counters,
	// peers and paths, to "rdmactl srd" for instance; empty means none.
	Monitor string

	Log *slog.Logger

	ackDelay, minTimeout time.Duration // the engine's, if not 0; tests set them
}

// Endpoint sends and receives reliable datagrams. Methods may be called from any number
// of goroutines.
type Endpoint struct {
	cfg     Config
	logs    logs
	gid     verbs.GIDEntry // as it was when the endpoint was opened
	addr    Addr
	d       *verbs.Dispatcher
	handles addressHandles
	driver  driver
	start   time.Time

	mu       sync.Mutex // guards all that follows
	e        machine
	requests []*request
	unused   uint32
	pool     pool
	inbox    ring[Message]
	readers  sleepers
	queues   map[*SendQueue]bool
	main     *SendQueue
	alarm    alarm.Alarm
	failure  error

	service  verbs.Waiter    // of serve
	rest     verbs.PollYield // of the goroutines that poll
	clock    time.Duration   // when something was done last
	stale    bool            // something came since pump
	nudged   chan struct{}
	serving  bool            // serve polls
	waiting  []*verbs.Waiter // of the program's goroutines, which poll
	left     time.Duration   // when the last of them went
	grace    time.Duration
	polling  bool          // the engine is called from a completion
	woke     bool          // a goroutine that waits was woken: it does what is due
	badKeys  uint64        // greetings with another key that were logged
	mendAt   time.Duration // when serve tries again to repair the device, or 0
	unmended uint8         // times in a row that it could not
	stop     context.CancelFunc
	served   sync.WaitGroup
	closing  sync.Mutex
	closed   atomic.Bool
}

// Open creates an endpoint. It uses SRD queue pairs on a device that has them, which is EFA,
// and UD queue pairs on any other.
func Open(cfg Config) (*Endpoint, error) {
	if cfg.PD == nil {
		return nil, fmt.Errorf("srd: open: %w: no PD", verbs.ErrAttributes)
	}
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&cfg.Paths, 8)
	def(&cfg.Receives, 512)
	def(&cfg.Buffers, 8<<20)
	def(&cfg.MaxMessage, min(cfg.Buffers, 1<<20))
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	switch {
	case cfg.Paths < 1 || cfg.Paths > engine.MaxPaths:
		return nil, fmt.Errorf("srd: open: %w: %d paths", verbs.ErrAttributes, cfg.Paths)
	case cfg.Receives < 16, cfg.Buffers < 1<<16, cfg.MaxMessage < 1, cfg.MaxMessage > cfg.Buffers, cfg.MaxPeers < 0:
		return nil, fmt.Errorf("srd: open: %w: Receives %d, Buffers %d, MaxMessage %d (at most Buffers), MaxPeers %d", verbs.ErrAttributes,
			cfg.Receives, cfg.Buffers, cfg.MaxMessage, cfg.MaxPeers)
	case cfg.PeerTimeout != 0 && (cfg.PeerTimeout < time.Microsecond || cfg.PeerTimeout > time.Hour):
		return nil, fmt.Errorf("srd: open: %w: PeerTimeout %v; it is from a microsecond to an hour", verbs.ErrAttributes, cfg.PeerTimeout)
	case cfg.Key != nil && len(cfg.Key) != 16:
		return nil, fmt.Errorf("srd: open: %w: a key of %d bytes; it has 16", verbs.ErrAttributes, len(cfg.Key))
	}
	ep := &Endpoint{cfg: cfg, logs: logs{to: cfg.Log}, gid: cfg.GID, start: time.Now(), queues: make(map[*SendQueue]bool), unused: none, nudged: make(chan struct{}, 1)}
	ep.pool.budget, ep.pool.patience = cfg.Buffers, cmp.Or(cfg.PeerTimeout, session.DefaultPeerTimeout)/8
	ep.grace = cmp.Or(cfg.ackDelay, session.DefaultAckDelay)
	ep.handles.init(ep)
	if err := ep.newBackend(); err != nil {
		return nil, errors.Join(fmt.Errorf("srd: open: %w", err), ep.closeDriver())
	}
	ep.handles.gid = ep.gid
	ep.main = ep.newQueue(QueueConfig{})
	ctx, stop := context.WithCancel(context.Background())
	ep.stop = stop
	ep.alarm.Init(ep.due, 20*time.Microsecond)
	changes := cfg.PD.Device().FollowGID(ctx, ep.gid, ep.handles.doubt)
	if err := ep.driver.begin(); err != nil {
		stop()
		return nil, errors.Join(fmt.Errorf("srd: open: %w", err), ep.closeDriver())
	}
	if cfg.Monitor != "" {
		if err := ep.monitor(ctx, cfg.Monitor); err != nil {
			stop()
			return nil, errors.Join(fmt.Errorf("srd: open: %w", err), ep.closeDriver())
		}
	}
	ep.served.Add(2)
	go ep.serve(ctx)
	go ep.handles.resolve(ctx)
	ep.served.Go(func() { ep.handles.follow(changes) })
	return ep, nil
}

// Addr returns the address at which the endpoint receives.
func (ep *Endpoint) Addr() Addr { return ep.addr }

// MaxPacket returns how many bytes of a message fit into one packet. Fewer fit into a packet to
// a peer that has a link with a smaller MTU.
func (ep *Endpoint) MaxPacket() int { return ep.e.Fragment() }

// now returns the time of the engine's clock.
func (ep *Endpoint) now() time.Duration { return time.Since(ep.start) }

// fail ends all calls: the device is of no use any more.
func (ep *Endpoint) fail(err error) {
	ep.mu.Lock()
	if ep.failure == nil {
		ep.failure = err
	}
	ep.wakeAll()
	ep.mu.Unlock()
}

// wakeAll wakes all goroutines that wait. ep.mu must be held.
func (ep *Endpoint) wakeAll() {
	ep.readers.wake(ep)
	for q := range ep.queues {
		q.waiting.wake(ep)
	}
	for _, r := range ep.requests {
		ep.wake(&r.waiter)
	}
}

// wake ends the wait of a goroutine. ep.mu must be held.
func (ep *Endpoint) wake(w *verbs.Waiter) {
	if ep.polling {
		w.Wake()
	} else {
		ep.d.Wake(w)
	}
	ep.woke = true
}

func (ep *Endpoint) open() error {
	if ep.closed.Load() {
		return verbs.ErrClosed
	}
	return ep.failure
}

// Close ends the endpoint and all calls on it. Messages that are not settled are given up
// and get no status: they may have been delivered. Their data belongs to the program when
// Close returns. Closing twice is not an error.
func (ep *Endpoint) Close() error {
	ep.closing.Lock()
	defer ep.closing.Unlock()
	if ep.closed.Swap(true) {
		return nil
	}
	ep.mu.Lock()
	ep.wakeAll()
	ep.mu.Unlock()
	ep.stop()
	ep.d.Wake(&ep.service)
	ep.served.Wait()
	ep.alarm.Stop()
	return ep.closeDriver()
}

func (ep *Endpoint) closeDriver() error {
	if ep.driver == nil {
		return nil
	}
	return ep.driver.close()
}
