package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Strangers queues rate-limited replies to unauthenticated senders. Begin must be called before
// the first use.
type Strangers struct {
	answers  [32]Answer
	first, n int
	credit   int
	filled   time.Duration
}

// Answer is a reply to an unauthenticated sender.
type Answer struct {
	To        wire.Addr
	Type      wire.Type
	Slot      uint32
	Token     uint64
	Reset     uint64
	Challenge wire.Challenged
}

// StrangerBurst is the largest number of replies in a burst.
const StrangerBurst = 64

const strangerRate = 100 * time.Microsecond // between two of them

// Begin allows a first burst of replies.
func (s *Strangers) Begin() { s.credit = StrangerBurst }

// Add queues a reply, and returns false if there are too many.
func (s *Strangers) Add(a Answer, now time.Duration) bool {
	if n := int((now - s.filled) / strangerRate); n > 0 {
		s.credit, s.filled = min(s.credit+n, StrangerBurst), now
	}
	if s.n == len(s.answers) || s.credit == 0 {
		return false
	}
	s.credit--
	s.answers[(s.first+s.n)%len(s.answers)] = a
	s.n++
	return true
}

// Empty reports whether no reply is queued.
func (s *Strangers) Empty() bool { return s.n == 0 }

// Next takes a reply from the queue, which must not be empty, writes its packet to b, and returns
// its destination.
func (s *Strangers) Next(stamp uint32, b []byte) Out {
	a := &s.answers[s.first]
	s.first = (s.first + 1) % len(s.answers)
	s.n--
	k := wire.Packet{Type: a.Type, Slot: a.Slot, Token: a.Token, Stamp: stamp, Reset: a.Reset, Challenge: a.Challenge}
	return Out{To: a.To, Headers: k.Encode(b), Stranger: true}
}
