package server

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

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

// replyAfterFlush queues a reply when no client can READ any more what was flushed. s.mu must be held.
func (s *Server) replyAfterFlush(c *client, a wire.Reply, came time.Duration) {
	s.awaitFlush(a.Seq, func() { c.flushes--; s.reply(c, &a); s.wake(c); s.took(c.by(), latency.Flush, came) })
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
		a := s.execute(c, &q)
		s.announce()
		if q.Op == kv.OpFlush && !s.store.Flushed(a.Seq) {
			if c.flushes++; c.flushes > maxFlushes {
				return false, errFlushes
			}
			s.replyAfterFlush(c, a, came)
		} else {
			s.reply(c, &a)
			s.took(c.by(), latency.Of(&q.Request), came)
		}
		if !c.replied {
			s.wake(c)
		}
		if a.Status == kv.NoMemory { // clients may still READ what was freed
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
