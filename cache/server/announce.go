package server

import "time"

// Clients that wait for no reply may not know of a change for as long as announceAfter, and for
// announceEvery while changes go on, or announceEach for each client if that is longer: what changed
// meanwhile comes in one message, and each client answers one. So many clients do not take all of the
// server's time; a sixteenth of the lease is the longest, after which who is behind is asked in any
// case. A client whose map is behind finds tombstones, and READs more to find what became of the
// records, so it is right all the same.
//
// Replies have all changes before them, so a client that calls often enough is sent nothing else: only
// those are told that have heard of none for that long, or nearly.
const (
	announceAfter = 10 * time.Millisecond
	announceEvery = 50 * time.Millisecond
	announceEach  = 10 * time.Millisecond
)

// pause is how long changes are collected for so many clients.
func pause(clients int, lease time.Duration) time.Duration {
	return max(announceEvery, min(time.Duration(clients)*announceEach, lease/16))
}

// announce has clients told of changes soon, if there are any that they do not know. The mutex is held.
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
	if s.closed {
		return
	}
	now, every := time.Now(), pause(len(s.clients), s.cfg.Lease)
	seq, next := s.store.Seq(), now.Add(every)
	pressed := s.pressed()
	s.toldOf = seq
	for _, c := range s.clients {
		if !c.behind(seq) {
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

// behind tells whether a client does not know of a change. The server's mutex is held.
func (c *client) behind(seq uint64) bool { return c.reads && c.next <= seq }

// tellAll tells those that do not know. The mutex is held.
func (s *Server) tellAll() {
	seq := s.store.Seq()
	for _, c := range s.clients {
		if c.behind(seq) {
			s.wake(c)
		}
	}
}
