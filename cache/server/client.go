package server

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

const (
	receives   = 8       // frames of a client that may wait: each client has memory for these and the spare ones, four pages
	frame      = 1280    // bytes of each: most requests are one
	maxReplies = 1 << 20 // bytes that may wait, then the client's requests do
	chunk      = 1024    // entries of a snapshot at a time
)

// client is one that is connected. The server's mutex guards it.
type client struct {
	cut     context.CancelFunc
	next    uint64 // delta
	pos     uint64 // of the snapshot
	snap    bool
	reads   bool // READs, and has the map; otherwise all that it wants is a call
	begun   bool // the map has, for who has none
	replies []byte
	room    chan struct{} // has a token when replies were sent
	writer
}

// scratch is what parts of the map are put together in. The server's mutex guards it.
type scratch struct {
	deltas  wire.Deltas
	entries wire.Chunk
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *Server) readConfig() verbs.LinkConfig {
	access := verbs.RemoteRead
	if s.writable != nil { // records are registered for READs alone, whatever a queue pair may
		access |= verbs.RemoteWrite
	}
	return verbs.LinkConfig{PD: s.records, QP: verbs.QPConfig{SendCQ: s.nothing, SRQ: s.none, MaxSendWR: 1, Access: access}}
}

// linkConfig is for clients whose messages complete in a queue; nil means one of each client's own.
func (s *Server) linkConfig(cq *verbs.CQ) verbs.LinkConfig {
	cfg := link.Config(verbs.LinkConfig{PD: s.calls, Connect: s.cfg.Connect, Setup: s.setup, QP: verbs.QPConfig{SendCQ: cq}}, receives)
	cfg.Receive.Size = frame
	return cfg
}

// leaving forgets what setup made, when the link closes.
type leaving struct {
	s *Server
	l *verbs.Link
}

func (e leaving) Close() error {
	e.s.mu.Lock()
	delete(e.s.joining, e.l)
	e.s.mu.Unlock()
	return nil
}

// setup makes the queue pair of a client's READs before it can connect.
func (s *Server) setup(l *verbs.Link) (verbs.Offer, error) {
	reads, data, err := link.Prepare(l, s.readConfig(), wire.Hello{Epoch: s.epoch, Frames: receives, Writable: s.writable != nil})
	if err != nil {
		return verbs.Offer{}, err
	}
	s.mu.Lock()
	s.joining[l] = reads
	s.mu.Unlock()
	return verbs.Offer{Regions: s.offer, Data: data}, l.Own(leaving{s, l})
}

// serve has one client until it ends. Its queue pairs are gone when it is forgotten:
// what it could READ is quarantined until then.
func (s *Server) serve(ctx context.Context, l *verbs.Link) (err error) {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	s.mu.Lock()
	reads := s.joining[l]
	s.mu.Unlock()
	id, c := s.attach(cut, true)
	if c == nil {
		return ErrClosed
	}
	defer func() {
		err = errors.Join(err, l.Close())
		s.detach(id)
	}()
	hello, err := link.Join(l, reads, s.cfg.Connect)
	if err != nil {
		return err
	}
	m, err := s.windows.Messages(l, hello, receives, s.maxRequest())
	if err != nil {
		return err
	}
	s.hasConnected()
	return s.talk(ctx, m, id, c)
}

// talk has the messages of one client until it ends.
func (s *Server) talk(ctx context.Context, m link.Conn, id uint64, c *client) error {
	s.connected(ctx, m, c)
	err := s.read(ctx, m, id, c)
	c.cut()
	if werr := s.disconnected(c); werr != nil && errors.Is(err, context.Canceled) {
		err = werr
	}
	return err
}

func (s *Server) maxRequest() int {
	n := s.cfg.MaxValue
	if n == 0 {
		n = s.cfg.Page
	}
	// What is too large for the store is to be answered so.
	return min(2*n+wire.MaxKey+1<<16, wire.MaxMessage)
}

func (s *Server) attach(cut context.CancelFunc, reads bool) (uint64, *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, nil
	}
	s.last++
	c := &client{cut: cut, reads: reads, room: make(chan struct{}, 1)}
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

// settle tells those who wait for memory that some may be there. The mutex is held.
func (s *Server) settle() {
	if s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}

// read takes what a client sends.
func (s *Server) read(ctx context.Context, m link.Conn, id uint64, c *client) error {
	var report wire.Report
	for {
		b, err := m.Next(ctx)
		if err != nil {
			return err
		}
		full, err := s.take(id, c, b, &report)
		if err != nil {
			return err
		}
		for full { // the client does not take its replies
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

// take does what a message wants. It tells whether too many replies wait.
func (s *Server) take(id uint64, c *client, b []byte, report *wire.Report) (full bool, err error) {
	h, err := wire.ReadHeader(b)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch h.Kind {
	case wire.KindRequest:
		q, err := wire.ReadRequest(b)
		if err != nil {
			return false, err
		}
		a := s.store.Do(s.now(), &q)
		if c.replies == nil {
			c.replies = s.spares.lend()
		}
		c.replies = wire.AppendReply(c.replies, &a)
		s.wake(c)
		if s.announce(); a.Status == wire.NoMemory { // others hold what was freed
			s.tellAll()
		}
	case wire.KindHorizon:
		h, err := wire.ReadHorizon(b)
		if err != nil {
			return false, err
		}
		if err := s.store.Heard(id, h); err != nil {
			return false, err
		}
		s.settle()
	case wire.KindReport:
		if err := report.Read(b); err != nil {
			return false, err
		}
		s.store.Reported(report)
	default:
		return false, wire.Malformed
	}
	return len(c.replies) > maxReplies, nil
}

// steps is what the store does at a tick of what can wait.
const steps = 256

// tick does what time brings.
func (s *Server) tick() {
	every := min(s.cfg.Lease/8, 100*time.Millisecond)
	t := time.NewTicker(every)
	defer t.Stop()
	var late []uint64
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-t.C:
		case <-s.stopped.Done():
			return
		}
		s.mu.Lock()
		now := s.now()
		s.store.Tick(now, steps)
		if time.Since(last) > s.cfg.Lease/4 {
			// This process had no time: nor had it any for what clients said.
			s.store.Pardon(now)
		}
		late = s.store.Late(now, late[:0])
		for _, id := range late {
			s.clients[id].cut()
		}
		s.announce()
		s.settle()
		s.mu.Unlock()
	}
}
