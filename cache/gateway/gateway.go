package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/accept"
	"github.com/goverbs/goverbs/internal/operr"
)

// Store is what a gateway serves. Many goroutines call it.
type Store interface {
	// Do carries out a request. The reply's value belongs to the gateway, and may lie in the
	// request's Into. An error means that the outcome is not known.
	Do(ctx context.Context, q *kv.Request) (kv.Reply, error)
	// StatLines are lines of the stats command: names and values.
	StatLines() [][2]string
}

// Config configures a gateway.
type Config struct {
	Store   Store
	TLS     *tls.Config       // nil: plain TCP. With TLS, version 1.3 is the least
	Users   map[string]string // passwords by name; if not empty, clients have to give one
	MaxItem int               // bytes of an item as memcached counts them; 0: 1 MiB
	MaxConn int               // connections at a time; 0: 1024
	Idle    time.Duration     // after which a silent connection is closed; 0: never
	Login   time.Duration     // in which a client has to begin TLS and give its password; 0: ten seconds
	Logger  *slog.Logger      // is told when connections cannot be accepted; nil: silent
}

// ErrClosed is what Serve returns after Shutdown or Close.
var ErrClosed = operr.ErrClosed

// Server is a gateway. It is safe for several goroutines.
type Server struct {
	cfg     Config
	begun   time.Time
	access  atomic.Pointer[access]
	ctx     context.Context
	stop    context.CancelFunc
	mu      sync.Mutex
	closed  bool
	open    map[net.Conn]*inbound
	heard   map[net.Listener]*accept.Acceptor
	last    uint64   // connection
	ended   sums     // of connections that have ended
	base    baseline // of the stats command
	serving sync.WaitGroup

	draining atomic.Bool // nothing more is waited for
	own      tally       // of what belongs to no connection
	details  details
}

// New makes a gateway that does not listen yet.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil {
		return nil, errors.New("gateway: no store")
	}
	if cfg.MaxItem == 0 {
		cfg.MaxItem = 1 << 20
	}
	if cfg.MaxConn == 0 {
		cfg.MaxConn = 1024
	}
	if cfg.Login == 0 {
		cfg.Login = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, begun: time.Now(), open: map[net.Conn]*inbound{}, heard: map[net.Listener]*accept.Acceptor{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.access.Store(newAccess(cfg.TLS, cfg.Users))
	return s, nil
}

// access is how clients come in.
type access struct {
	tls   *tls.Config
	users map[string]string
}

func newAccess(t *tls.Config, users map[string]string) *access {
	if t != nil {
		t = t.Clone()
		t.MinVersion = tls.VersionTLS13
	}
	return &access{t, maps.Clone(users)}
}

// Admit changes TLS and Users of [Config] for later connections. Clients that have given
// a correct password stay.
func (s *Server) Admit(t *tls.Config, users map[string]string) { s.access.Store(newAccess(t, users)) }

// Stats are counters since the beginning, and how many connections there are.
type Stats struct {
	Connections uint64 // now
	Total       uint64
	Rejected    uint64 // connections beyond MaxConn
	Gets, Hits  uint64 // keys of commands that return values and do not touch
	AuthErrors  uint64 // passwords that were wrong
	Binary      uint64 // clients of the binary protocol, which is refused
	IdleKicks   uint64 // connections that were silent for longer than Idle
	Shortages   uint64 // times that connections waited since the process had no file descriptors
	TLS         bool   // connections have to use it
	Passwords   bool   // clients have to give one
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, by := s.sum(), s.access.Load()
	return Stats{
		Connections: uint64(len(s.open)), Total: n[accepted], Rejected: n[rejected], Gets: n[getHits] + n[getMisses], Hits: n[getHits],
		AuthErrors: n[passwordErrors], Binary: n[binaryRefused], IdleKicks: n[idleKicks], Shortages: n[shortages],
		TLS: by.tls != nil, Passwords: len(by.users) > 0,
	}
}

// sum returns the counters of all connections, those that have ended included. s.mu must be held.
func (s *Server) sum() sums {
	all := s.ended
	all.add(&s.own)
	for _, c := range s.open {
		all.add(&c.tally)
	}
	return all
}
