package server

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

const (
	receives   = 8       // frames of a client that may wait: each client has memory for these and the spare ones, four pages
	frame      = 1280    // bytes of each: most requests are one
	maxReplies = 1 << 20 // bytes that may wait, then the client's requests do
	maxFlushes = 1 << 12 // of a client that may wait for others: there is no reply yet
	chunk      = 1024    // entries of a full sync at a time
)

// errLate is the error of a client that hangs.
var errLate = errors.New("it has not said within the lease that it is done with what was freed")

var errFlushes = errors.New("more flushes than may wait for clients")

// client is a connected client. The server's mu guards it.
type client struct {
	cut     context.CancelCauseFunc
	from    netip.Prefix // see pending.Source
	came    time.Time
	next    uint64 // delta
	pos     uint64 // of the full sync
	snap    bool
	reads   bool      // READs, and has the map; otherwise everything is an RPC
	begun   bool      // a client that has no map was sent the beginning of one
	mode    wire.Mode // as the client has chosen
	advised bool      // if it has not: it is to probe
	alone   bool      // it was told last that it has no map
	beats   bool      // it wants to hear from the server when there is nothing new, too
	// whether the goroutine that takes its messages sends the replies, too
	replied bool
	seal    greet.Seal   // of its greeting, if it READs through the target
	through bool         // it READs through the target, of which it
	tell    *wire.Target // is to be told; nil: it has been
	left    bool         // it has said that it READs nothing any more
	replies []byte
	placed  uint32        // the version of the placement that it was sent last
	life    uint32        // of the server in its cluster, in which it came
	flushes int           // that are not over
	room    chan struct{} // has a token when replies were sent, or something has arrived by RDMA
	writer
}

// scratch is where parts of the map are put together. The server's mu guards it.
type scratch struct {
	deltas  wire.Deltas
	entries wire.Chunk
	report  wire.Report
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// probes reports whether a client is to probe.
func (c *client) probes() bool {
	return c.mode == wire.Probed || c.mode == wire.Advised && c.advised
}

func (s *Server) attach(cut context.CancelCauseFunc, reads bool) (uint64, *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, nil
	}
	s.last++
	c := &client{cut: cut, reads: reads, advised: s.advice.Probes(), room: make(chan struct{}, 1)}
	if s.shards != nil {
		c.life = s.shards.life
	}
	c.send = func() { s.write(c) }
	s.clients[s.last] = c
	if reads {
		s.store.Attach(s.last, s.now())
	}
	return s.last, c
}

func (s *Server) detach(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, id)
	s.store.Detach(id)
	s.settle()
}

// settle wakes the goroutines that wait for memory, since some may be there, and ends the flushes that
// are over. s.mu must be held.
func (s *Server) settle() {
	s.settleFlushes()
	if s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}

func (s *Server) maxRequest() int {
	// A request that is too large for the store gets a reply that says so.
	return min(2*s.cfg.MaxValue+wire.MaxKey+1<<16, wire.MaxMessage)
}

// wake starts a worker that sends a client what there is for it, unless one does already. s.mu must be
// held.
func (s *Server) wake(c *client) {
	if c.to != nil && !c.busy {
		c.busy = true
		c.running.Add(1)
		s.workers.run(c.send)
	}
}

// by returns the transport of the client's messages.
func (c *client) by() latency.Transport {
	if c.reads && !c.through {
		return latency.RDMA
	}
	return latency.TCP
}

// took counts a request that came at a time since the server began, and has its reply now.
func (s *Server) took(by latency.Transport, op latency.Op, came time.Duration) {
	s.latency.Add(by, op, time.Since(s.begun)-came)
}
