package server

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/internal/advice"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/store"
	"github.com/goverbs/goverbs/verbs"
)

// ErrClosed is what a closed server returns.
var ErrClosed = verbs.ErrClosed

// Server is the server of a cache. It is safe for several goroutines.
type Server struct {
	cfg       Config
	addr      net.Addr
	admission *admission // if it has its own
	links     *queue     // clients that have been admitted, by RDMA
	streams   *queue     // and by TCP
	begun     time.Time
	epoch     uint32

	dev     *verbs.Device
	records *verbs.PD  // of the arena and the queue pairs that READ it
	calls   *verbs.PD  // of messages
	queues  queues     // where messages complete
	nothing *verbs.CQ  // of the queue pairs that READ: this side asks nothing of them, and
	none    *verbs.SRQ // takes nothing from them
	windows *link.Windows
	arena   []*verbs.MR
	through through
	offer   []verbs.Region
	latency latency.Table

	mu      sync.Mutex // of what follows
	closed  bool
	store   *store.Store
	clients map[uint64]*client
	slow    slow
	scratch scratch
	spares  spares
	workers workers
	shards  *shards // nil: the server is none of a cluster
	tables  tables
	advice  advice.Advice
	// places has the number of connections of each client that was let in.
	places  map[[16]byte]int
	last    uint64        // client
	settled chan struct{} // closed when quarantine has moved on; nil while no goroutine waits
	flushes []flushing    // that are not over
	asking  bool          // clients will be asked again how far they are
	due     bool          // clients will be told of changes
	nextDue time.Time     // not before that
	toldOf  uint64        // the last change that all know of
	tell    *time.Timer   // that tells them

	stop    context.CancelFunc
	stopped context.Context
	running sync.WaitGroup
}

// now returns the store's time, in ms.
func (s *Server) now() uint64 { return uint64(time.Since(s.begun)/time.Millisecond) + 1 }

// at returns the store's time at another one, which is 0 before the server began.
func (s *Server) at(t time.Time) uint64 {
	return uint64(max(t.Sub(s.begun)+time.Millisecond, 0) / time.Millisecond)
}

// ended logs why a client has ended.
func (s *Server) ended(who net.Addr, err error) {
	s.cfg.Logger.Info("cache: a client has ended", "address", who.String(), "error", err)
}

// Addr returns the address at which the server listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Device returns the name of the RDMA device.
func (s *Server) Device() string { return s.dev.Name() }

// Epoch returns the number of this life of the server.
func (s *Server) Epoch() uint32 { return s.epoch }
