package lockoffload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/accept"
	"github.com/goverbs/goverbs/internal/closing"
	"github.com/goverbs/goverbs/internal/pending"
	"github.com/goverbs/goverbs/verbs"
)

// ListenConfig describes a target that serves itself. Layout and Key must be set.
type ListenConfig struct {
	Layout Layout
	// Key is shared with the clients, at least 16 bytes. Without it a client can
	// change nothing. It keeps nothing secret: on a network where others listen,
	// give [NewListener] a listener that encrypts, and mind that RDMA does not.
	Key     []byte
	Lease   time.Duration // as in [ServerConfig]
	Grace   time.Duration // as in [ServerConfig]
	GID     verbs.GIDEntry
	Connect verbs.ConnectConfig // of the queue pairs to clients
	// Agent bounds the agent's work; its PD, Region and GID are the listener's.
	// With NoAgent there is none.
	Agent   AgentConfig
	NoAgent bool
	Logger  *slog.Logger // nil: silent
}

// minKey is the length of the shortest key, in bytes.
const minKey = 16

// maxDialed is the number of chains that fit into the queue pairs of clients that dial.
const maxDialed = 32

// Listener is a target: a region, its server and its agent, and an address at which
// clients find them, see [Dial]. Its methods are safe for concurrent use.
type Listener struct {
	cfg    ListenConfig
	pd     *verbs.PD
	tcp    net.Listener
	mr     *verbs.MR
	made   closing.Stack
	region *Region
	srv    *Server
	work   sync.WaitGroup
	stop   context.CancelFunc
	over   context.Context // ends with Close

	accepting *accept.Acceptor
	pending   *pending.Conns // clients that have not shown that they have the key

	closing sync.Once
	ended   error // of Close

	mu     sync.Mutex
	agent  *Agent
	links  map[uint64]*agentConn // of the agent's clients
	closed bool
	failed error // the end of accepting
	lame   error // why there is no agent in place of one that failed
}

// Listen serves locked memory, of a new region, at a TCP address, until the listener is
// closed.
func Listen(pd *verbs.PD, address string, cfg ListenConfig) (*Listener, error) {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return nil, opErrorf("listen", err)
	}
	l, err := NewListener(pd, tcp, cfg)
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return l, nil
}

// NewListener is Listen with connections from tcp, which may be TLS, for instance. Unless
// it returns an error, the Listener closes tcp.
func NewListener(pd *verbs.PD, tcp net.Listener, cfg ListenConfig) (l *Listener, err error) {
	if pd == nil || tcp == nil || len(cfg.Key) < minKey {
		return nil, fmt.Errorf("lockoffload: listen: a PD, and a key of %d bytes at least, are needed: %w", minKey, ErrConfig)
	}
	if cfg.Agent.Limits.Window > maxDialed {
		return nil, fmt.Errorf("lockoffload: listen: window of %d chains, clients that dial have %d at most: %w", cfg.Agent.Limits.Window, maxDialed, ErrConfig)
	}
	cfg.Layout = cfg.Layout.withDefaults()
	if err := cfg.Layout.check(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, discard)
	l = &Listener{cfg: cfg, pd: pd, pending: pending.New(), links: map[uint64]*agentConn{}}
	l.over, l.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("lockoffload: listen: %w", err), l.Close())
			l = nil
		}
	}()
	access := verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic
	if l.mr, err = pd.AllocMR(cfg.Layout.Bytes(), verbs.MRConfig{Access: access}); err != nil {
		return l, err
	}
	l.made.Add(l.mr)
	if l.region, err = NewRegion(l.mr, cfg.Layout); err != nil {
		return l, err
	}
	if l.srv, err = NewServer(ServerConfig{PD: pd, Region: l.region, GID: cfg.GID, Lease: cfg.Lease, Grace: cfg.Grace, Connect: cfg.Connect, Logger: cfg.Logger}); err != nil {
		return l, err
	}
	l.made.Add(l.srv)
	if !cfg.NoAgent {
		if l.agent, err = l.newAgent(); err != nil {
			return l, err
		}
		l.made.Add(closing.Func(func() error { return l.agent.Close() })) // the last one
		l.work.Go(l.sweep)
	}
	l.tcp, l.accepting = tcp, accept.New(tcp, func(err error) {
		cfg.Logger.Error("lockoffload: no room for connections", "error", err)
	})
	l.work.Go(l.accept)
	return l, nil
}

func (l *Listener) newAgent() (*Agent, error) {
	cfg := l.cfg.Agent
	cfg.PD, cfg.Region, cfg.GID = l.pd, l.region, l.cfg.GID
	if cfg.Logger == nil {
		cfg.Logger = l.cfg.Logger
	}
	return NewAgent(cfg)
}

// Addr returns the address at which clients find the target.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Stats returns the counts of the server.
func (l *Listener) Stats() ServerStats { return l.srv.Stats() }

// AgentStats returns the counts of the agent, since it was made, if there is one.
func (l *Listener) AgentStats() AgentStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.agent == nil {
		return AgentStats{}
	}
	return l.agent.Stats()
}

// Err returns what is wrong with the target now: connections cannot be accepted, the agent
// failed and there is no other one yet, or [Server.Err]. If the process has no file descriptor
// or memory for connections, they wait until it has; any other error of accepting is final.
func (l *Listener) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed := l.failed
	if l.accepting.Short() {
		failed = errShort
	}
	return errors.Join(failed, l.lame, l.srv.Err())
}

var errShort = errors.New("lockoffload: no file descriptors or memory for connections")

// Close ends all sessions and frees the region. It may be called again: a second call
// waits for the first and returns the same error.
func (l *Listener) Close() error {
	l.closing.Do(func() { l.ended = l.close() })
	return l.ended
}

func (l *Listener) close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	var err error
	if l.tcp != nil {
		err = l.tcp.Close()
	}
	l.mu.Lock()
	for _, a := range l.links {
		a.conn.Close() // its goroutine does the rest
	}
	l.mu.Unlock()
	l.work.Wait()
	return errors.Join(err, l.made.Close())
}

// Local makes a client for the target's own process. It reaches the region through the
// device, like all others: atomics of a device need not be atomic against a CPU's. It
// has a place and a lease like them, takes its turns at [Fair] locks and has [Client.Do]
// use the agent, if there is one, and is to be closed before the listener. The place is
// free again when the client is closed. It waits until clients are admitted, see
// ListenConfig.Grace.
func (l *Listener) Local(retry Retry) (*Client, error) {
	join := func(ctx context.Context) (joined, error) {
		if err := l.srv.awaitOpen(ctx); err != nil {
			return joined{}, err
		}
		s, err := l.srv.Admit(nil)
		if err != nil {
			return joined{}, err
		}
		j, err := newJoined(l.pd, l.cfg.GID)
		if err != nil {
			return j, errors.Join(err, s.Close())
		}
		here, err := j.qp.Endpoint()
		there, serr := s.Endpoint()
		if err = errors.Join(err, serr); err == nil {
			err = errors.Join(s.Connect(here), j.qp.Connect(there, l.cfg.Connect))
		}
		if err != nil {
			return j, errors.Join(err, j.close(), s.Close())
		}
		j.info, j.leave = s.Info(), s.Evict // its client has closed
		return j, nil
	}
	helper := l.inside().caller
	if l.cfg.NoAgent {
		helper = nil
	}
	return newDialed(l.over, l.pd, join, helper, retry, l.cfg.Logger)
}

// inside returns a dialer for the target's own process.
func (l *Listener) inside() *dialer {
	dial := func(context.Context, string, string) (net.Conn, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.closed {
			return nil, ErrClosed
		}
		here, there := net.Pipe()
		l.work.Go(func() { l.serve(there) })
		return here, nil
	}
	return &dialer{pd: l.pd, cfg: DialConfig{Key: l.cfg.Key, GID: l.cfg.GID, Connect: l.cfg.Connect, Dialer: dial}}
}
