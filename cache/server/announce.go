package server

import "time"

// Clients that wait for no reply may not know of a change for as long as announceAfter, and for
// announceEvery while changes go on, or announceEach for each client if that is longer: what changed
// meanwhile comes in one message, and each client answers one. So many clients do not take all of the
// server's time; a sixteenth of the lease is the longest, after which who is behind is asked in any
// case. A client whose map is behind finds tombstones and asks, so it is right all the same, and
// then it knows.
const (
	announceAfter = 10 * time.Millisecond
	announceEvery = 50 * time.Millisecond
	announceEach  = 10 * time.Millisecond
)

// pause is how long changes are collected for so many clients.
func pause(clients int, lease time.Duration) time.Duration {
	return max(announceEvery, min(time.Duration(clients)*announceEach, lease/16))
}

// announce has all clients told of changes soon, if there are any since they were told. The mutex is
// held.
func (s *Server) announce() {
	if s.due || s.closed || s.store.Seq() == s.toldOf {
		return
	}
	s.due = true
	after := announceAfter
	if rest := pause(len(s.clients), s.cfg.Lease) - time.Since(s.told); !s.pressed() {
		after = max(after, rest)
	}
	s.tell.Reset(after)
}

// pressed tells whether so much memory waits for what clients have not heard of yet that changes
// may soon have none.
func (s *Server) pressed() bool {
	n := s.store.Stats().Arena
	return n.Limbo > n.Total/32
}

func (s *Server) announceNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = false
	if !s.closed {
		s.told, s.toldOf = time.Now(), s.store.Seq()
		s.tellAll()
	}
}

// tellAll tells those that do not know. The mutex is held.
func (s *Server) tellAll() {
	seq := s.store.Seq()
	for _, c := range s.clients {
		if c.reads && c.next <= seq {
			s.wake(c)
		}
	}
}
