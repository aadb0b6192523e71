package server

import (
	"context"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// writer sends to a client, on one of the server's workers, while there is anything to send, so that a
// client that is quiet takes neither a stack nor a buffer. The server's mu guards it.
type writer struct {
	send    func()
	ctx     context.Context
	to      link.Conn // nil: nothing can be sent yet, or any more
	unsent  []byte    // what could not be posted: nothing else is sent until it is written
	busy    bool
	due     bool      // the client is to hear from the server, if only that there is nothing new
	said    time.Time // when it did
	asks    bool      // it is to say how far it is
	asked   time.Time // when it was asked, or came
	askedOf uint64    // the last change that it had been told of then
	spoke   time.Time // when it last said how far it is, asked or not
	learned time.Time // when it heard of a change
	running sync.WaitGroup
	err     error // that ended it
	// hear is of a client by RDMA, which grants room for what is sent by what it sends, also while its requests
	// wait.
	hear func() error
}

// connected starts to send a client what there is for it.
func (s *Server) connected(ctx context.Context, to link.Conn, c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ctx, c.to, c.said = ctx, to, time.Now()
	c.asked = c.said // nothing is known of it yet: it has as long as others
	s.wake(c)
}

// beat schedules messages that say that there is nothing new: each sixteenth of the lease at least to
// clients that have asked for them, and each quarter to the others, which learn from them that their
// clock has stood still. Clients that have not said that they are done with what was freed are asked
// when they have said nothing of that for an eighth. There is another beat after every. s.mu must be
// held.
func (s *Server) beat(now time.Time, every time.Duration) {
	for id, c := range s.clients {
		if !c.reads || c.to == nil {
			continue
		}
		longest := s.cfg.Lease / 4
		if c.beats {
			longest = s.cfg.Lease / 16
		}
		if now.Sub(c.said)+every > longest {
			c.due = true
			s.wake(c)
		}
		last := c.asked
		if c.spoke.After(last) { // its requests say that too: it need not be asked
			last = c.spoke
		}
		if now.Sub(last)+every > s.cfg.Lease/8 && s.store.Behind(id) {
			c.asks = true
			s.wake(c)
		}
	}
}

// disconnected waits until nothing is sent to a client any more; the client's context must have ended.
// It returns the error that sending has ended with before, if it has.
func (s *Server) disconnected(c *client) error {
	s.mu.Lock()
	c.to = nil
	s.mu.Unlock()
	c.running.Wait()
	return c.err
}

// write sends the map, its changes and replies, until there are none.
func (s *Server) write(c *client) {
	defer c.running.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendAll(c, func(to link.Conn, b []byte) (bool, error) { return true, link.Send(c.ctx, to, b) })
}

// sendReplies sends what there is for a client in this goroutine, which takes its messages. If that has to
// wait for room a worker does it instead, since the room is granted by the client's next messages.
func (s *Server) sendReplies(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.to == nil || c.busy {
		return
	}
	c.busy = true
	c.running.Add(1)
	defer c.running.Done()
	s.sendAll(c, func(to link.Conn, b []byte) (bool, error) { return link.Post(c.ctx, to, b) })
	if len(c.unsent) > 0 {
		s.wake(c)
	}
}

// sendAll calls send until there is nothing to send, or it did not send. s.mu must be held, and the
// client is busy until all is done.
func (s *Server) sendAll(c *client, send func(to link.Conn, b []byte) (bool, error)) {
	out := c.unsent
	if c.unsent = nil; out == nil {
		out = s.gather(c, s.spares.lend())
	}
	for ; c.to != nil && len(out) > 0; out = s.gather(c, out[:0]) {
		to := c.to
		s.mu.Unlock()
		sent, err := send(to, out)
		s.mu.Lock()
		switch {
		case err != nil:
			c.err, c.to = err, nil
			c.cut(err)
		case !sent:
			c.unsent, c.busy = out, false
			return
		}
	}
	s.spares.giveBack(out)
	c.busy = false
}

// gather appends what there is to send. s.mu must be held.
func (s *Server) gather(c *client, out []byte) []byte {
	if c.tell != nil { // before all that it may READ through it
		out, c.tell = wire.AppendTarget(out, c.tell), nil
	}
	out = s.gatherPlacement(c, out)
	switch {
	case c.reads && c.probes():
		out = s.gatherProbed(c, out)
	case c.reads:
		out = s.gatherMap(c, out)
	case !c.begun: // this tells a client that it is admitted
		b := s.beginMap(s.now())
		out, c.begun = wire.AppendMap(out, &b), true
	}
	if len(c.replies) > 0 {
		out = append(out, c.replies...)
		s.spares.giveBack(c.replies)
		c.replies = nil
		signal(c.room)
	}
	return out
}

// gatherMap appends what there is to send of the map. s.mu must be held.
func (s *Server) gatherMap(c *client, out []byte) []byte {
	now, deltas, entries := s.now(), &s.scratch.deltas, &s.scratch.entries
	if c.alone {
		c.alone, c.next = false, 0 // a full sync follows
	}
	for {
		if !s.store.Deltas(now, c.next, wire.MaxEntries, deltas) {
			b := s.beginMap(now)
			c.next, c.pos, c.snap = b.Seq+1, 0, true
			out = wire.AppendMap(out, &b)
			break
		}
		if len(deltas.List) == 0 {
			if !c.due && !c.asks { // a client replies to what has no change
				break
			}
			c.asks, c.asked, c.askedOf = false, time.Now(), c.next-1
		}
		c.due = false
		out = wire.AppendDeltas(out, deltas)
		if len(deltas.List) > 0 {
			c.learned = time.Now()
		}
		c.next += uint64(len(deltas.List))
		if len(deltas.List) < wire.MaxEntries && !c.asks {
			break
		}
	}
	if len(out) > 0 {
		c.said = time.Now()
	}
	if c.snap {
		c.pos = s.store.Chunk(now, c.pos, chunk, entries)
		c.snap = !entries.Last
		out = wire.AppendChunk(out, entries)
	}
	return out
}

// spares are buffers for messages that no client needs just now. The server's mu guards them.
type spares [][]byte

const (
	spareBytes = 4 << 10 // of the longest one that is kept
	spareCount = 64
)

// lend returns an empty buffer, of any capacity.
func (s *spares) lend() []byte {
	n := len(*s)
	if n == 0 {
		return nil
	}
	b := (*s)[n-1]
	*s = (*s)[:n-1]
	return b
}

// giveBack takes a buffer that is no longer in use.
func (s *spares) giveBack(b []byte) {
	if cap(b) > 0 && cap(b) <= spareBytes && len(*s) < spareCount {
		*s = append(*s, b[:0])
	}
}
