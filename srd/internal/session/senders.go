package session

import (
	"slices"
	"time"
)

// SenderAge is how long a peer counts as a sender after it sent.
const SenderAge = 50 * time.Millisecond

// Enter counts a peer among those that send now, and reports whether it did not count before.
func (s *Sessions) Enter(p *Peer) bool {
	if p.Sender {
		return false
	}
	p.Sender = true
	s.Senders = append(s.Senders, p)
	return true
}

// Leave counts a peer no more, and reports whether it did before.
func (s *Sessions) Leave(p *Peer) bool {
	if !p.Sender {
		return false
	}
	p.Sender = false
	last := len(s.Senders) - 1
	s.Senders[slices.Index(s.Senders, p)] = s.Senders[last]
	s.Senders[last] = nil
	s.Senders = s.Senders[:last]
	return true
}

// Stopped returns the next of the senders if it has stopped, or nil. A few calls for each packet find
// all that stop.
func (s *Sessions) Stopped() *Peer {
	if len(s.Senders) == 0 {
		return nil
	}
	s.look = (s.look + 1) % len(s.Senders)
	if p := s.Senders[s.look]; s.Now-p.Heard.At > SenderAge {
		return p
	}
	return nil
}
