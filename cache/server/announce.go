package server

import "time"

// Clients that wait for no reply may not know of a change for as long as announceAfter, and for
// announceEvery while changes go on, or announceEach for each client if that is longer: what changed
// meanwhile comes in one message. So many clients do not take all of the server's time; a sixteenth of
// the lease is the longest. A client with a map that is behind finds tombstones, and READs more to find what
// became of the records, so it is right all the same.
//
// Replies have all changes before them, so a client that sends RPCs often enough is sent nothing else: only
// clients are told that have heard of no change for that long, or nearly.
//
// A client says with its next RPC that it has left changes behind. One that sends none is asked, once in
// an eighth of the lease, which is soon enough for one that has half of it; and at once when changes may soon
// have no memory for what it has not left behind, but after announceAfter only if there is nothing new.
const (
	announceAfter = 10 * time.Millisecond
	announceEvery = 50 * time.Millisecond
	announceEach  = 20 * time.Millisecond
)

// pause returns how long changes are collected for so many clients.
func pause(clients int, lease time.Duration) time.Duration {
	return max(announceEvery, min(time.Duration(clients)*announceEach, lease/16))
}

// announce schedules a message to clients about changes, if there are any that they do not know. s.mu
// must be held.
func (s *Server) announce() {
	if s.due || s.closed || s.store.Seq() == s.toldOf {
		return
	}
	s.due = true
	after := announceAfter
	if rest := time.Until(s.nextDue); !s.pressed() {
		after = max(after, rest)
	}
	s.tell.Reset(after)
}

// pressed reports whether so much memory waits for what clients have not heard of yet that changes may
// soon have none. s.mu must be held.
func (s *Server) pressed() bool {
	n := s.store.Stats().Arena
	return n.Quarantine > n.Total/64
}

func (s *Server) announceNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = false
	if s.closed {
		return
	}
	now, every := time.Now(), pause(len(s.clients), s.cfg.Lease)
	seq, next := s.store.Seq(), now.Add(every)
	pressed := s.pressed()
	s.toldOf = seq
	for id, c := range s.clients {
		if pressed {
			s.ask(id, c, now)
		}
		if !s.behind(c) {
			continue
		}
		if due := c.learned.Add(every); !pressed && due.Sub(now) > every/4 {
			s.toldOf = 0 // a reply may tell it before that
			if due.Before(next) {
				next = due
			}
			continue
		}
		s.wake(c)
	}
	s.nextDue = next
	s.announce()
}

// behind reports whether a client is to be told of a change. s.mu must be held.
func (s *Server) behind(c *client) bool {
	seq := s.store.Seq()
	if c.probes() {
		seq = s.store.TableMoved()
	}
	return c.reads && c.next <= seq
}

// ask has a client say how far it is, unless it has left all changes behind, or was asked about the
// same changes just before. s.mu must be held.
func (s *Server) ask(id uint64, c *client, now time.Time) {
	if seq := s.store.Seq(); c.reads && s.store.Behind(id) && (c.askedOf < seq || now.Sub(c.asked) >= announceAfter) {
		c.asks = true
		s.wake(c)
	}
}

// askAll asks all clients. s.mu must be held.
func (s *Server) askAll() {
	now := time.Now()
	for id, c := range s.clients {
		s.ask(id, c, now)
	}
}
