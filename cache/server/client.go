package server

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

const (
	receives   = 8       // frames of a client that may wait: each client has memory for these and the spare ones, four pages
	frame      = 1280    // bytes of each: most requests are one
	maxReplies = 1 << 20 // bytes that may wait, then the client's requests do
	maxFlushes = 1 << 12 // of a client that may wait for others: there is no reply yet
	chunk      = 1024    // entries of a snapshot at a time
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
	pos     uint64 // of the snapshot
	snap    bool
	reads   bool      // READs, and has the map; otherwise all that it wants is a call
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

// talk handles the messages of one client until it ends, in this goroutine.
func (s *Server) talk(ctx context.Context, m link.Conn, id uint64, c *client) error {
	s.connected(ctx, m, c)
	err := s.read(ctx, m.Next, id, c)
	c.cut(nil)
	if werr := s.disconnected(c); werr != nil && errors.Is(err, context.Canceled) {
		err = werr
	}
	return err
}

func (s *Server) maxRequest() int {
	// A request that is too large for the store gets a reply that says so.
	return min(2*s.cfg.MaxValue+wire.MaxKey+1<<16, wire.MaxMessage)
}

func (s *Server) attach(cut context.CancelCauseFunc, reads bool) (uint64, *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, nil
	}
	s.last++
	c := &client{cut: cut, reads: reads, advised: s.advice.Probes(), room: make(chan struct{}, 1)}
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

// reply queues a reply to a client. s.mu must be held.
func (s *Server) reply(c *client, a *wire.Reply) {
	if c.replies == nil {
		c.replies = s.spares.lend()
	}
	c.replies = wire.AppendReply(c.replies, a)
}

// read handles what a client sends, until next returns nothing.
func (s *Server) read(ctx context.Context, next func(context.Context) ([]byte, error), id uint64, c *client) error {
	for n := 1; ; n++ {
		b, err := next(ctx)
		if err != nil {
			return err
		}
		if b == nil {
			s.sendReplies(c)
			return nil
		}
		full, err := s.take(id, c, b)
		if err != nil {
			return err
		}
		if n%receives == 0 && c.replied { // there may always be more
			s.sendReplies(c)
		}
		for full { // the client does not take its replies
			s.mu.Lock()
			s.wake(c)
			s.mu.Unlock()
			if c.hear != nil {
				if err := c.hear(); err != nil {
					return err
				}
			}
			select {
			case <-c.room:
			case <-ctx.Done():
				return ctx.Err()
			}
			s.mu.Lock()
			full = len(c.replies) > maxReplies
			s.mu.Unlock()
		}
	}
}

// take handles a message. It reports whether too many replies wait.
func (s *Server) take(id uint64, c *client, b []byte) (full bool, err error) {
	h, err := wire.ReadHeader(b)
	if err != nil {
		return false, err
	}
	came := time.Since(s.begun)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, ErrClosed
	}
	switch h.Kind {
	case wire.KindRequest:
		q, err := wire.ReadRequest(b)
		if err != nil {
			return false, err
		}
		a := s.execute(&q)
		s.announce()
		if q.Op == wire.OpFlush && !s.store.Flushed(a.Seq) {
			if c.flushes++; c.flushes > maxFlushes {
				return false, errFlushes
			}
			s.awaitFlush(a.Seq, func() { c.flushes--; s.reply(c, &a); s.wake(c); s.took(c.by(), latency.Flush, came) })
		} else {
			s.reply(c, &a)
			s.took(c.by(), latency.Of(&q), came)
		}
		if !c.replied {
			s.wake(c)
		}
		if a.Status == wire.NoMemory { // clients may still READ what was freed
			s.askAll()
		}
	case wire.KindHorizon:
		h, err := wire.ReadHorizon(b)
		if err != nil {
			return false, err
		}
		if err := s.store.Heard(id, h); err != nil {
			return false, err
		}
		c.spoke = time.Now()
		s.settle()
	case wire.KindReport:
		if err := s.scratch.report.Read(b); err != nil {
			return false, err
		}
		s.store.Reported(&s.scratch.report)
	case wire.KindMode:
		m, err := wire.ReadMode(b)
		if err == nil {
			err = s.choose(c, m)
		}
		if err != nil {
			return false, err
		}
	case wire.KindBye:
		if _, err := wire.ReadBye(b); err != nil || !c.through {
			return false, wire.Malformed
		}
		s.leave(id, c)
		return false, io.EOF // no different from a connection that ended
	default:
		return false, wire.Malformed
	}
	return len(c.replies) > maxReplies, nil
}

const (
	steps    = 256 // of what can wait, before others have their turn; an eighth of the time at most
	longTick = 500 * time.Millisecond
)

// tick does what is due by time, all of it by one timer: a process that is woken less often takes less
// of the processor.
func (s *Server) tick() {
	every := min(s.cfg.Lease/16, longTick)
	t := time.NewTicker(every)
	defer t.Stop()
	var late []uint64
	for last := time.Now(); ; {
		select {
		case <-t.C:
		case <-s.stopped.Done():
			return
		}
		s.queues.reap()
		s.workers.trim()
		begun := time.Now()
		passed := begun.Sub(last)
		last = begun
		s.mu.Lock()
		now := s.now()
		for s.store.Tick(now, steps) && time.Since(begun) < every/8 {
			s.mu.Unlock() // others have their turn
			s.mu.Lock()
		}
		if passed > s.cfg.Lease/4 {
			// This process had no time: nor had it any for what clients said.
			s.store.Pardon(now)
		}
		s.advise(begun)
		late = s.store.Late(now, late[:0])
		for _, id := range late {
			s.cutLate(id)
		}
		s.slow.forget(begun, s.cfg.Lease)
		s.fenceNow()
		s.announce()
		s.beat(begun, every)
		s.settle()
		s.mu.Unlock()
	}
}
