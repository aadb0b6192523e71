package session

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// replyQueue queues rate-limited replies to unauthenticated senders.
type replyQueue struct {
	queue    [32]Reply
	first, n int
	credit   int
	filled   time.Duration
}

// Reply is a reply to an unauthenticated sender.
type Reply struct {
	To        wire.Addr
	Type      wire.Type
	Slot      uint32
	Token     uint64
	Reset     uint64
	Challenge wire.Challenged
}

const (
	// ReplyBurst is the largest number of replies in a burst.
	ReplyBurst = 64
	// ReplyInterval is the time between two of them otherwise.
	ReplyInterval = 100 * time.Microsecond
)

// Reply queues a reply, unless there are too many.
func (s *Sessions) Reply(a Reply) {
	q := &s.replies
	if n := int((s.Now - q.filled) / ReplyInterval); n > 0 {
		q.credit, q.filled = min(q.credit+n, ReplyBurst), s.Now
	}
	switch {
	case q.n == len(q.queue) || q.credit == 0:
		s.Stats.Unanswered++
		return
	case a.Type == wire.Reset:
		s.Stats.Resets++
	default:
		s.Stats.Challenges++
	}
	q.credit--
	q.queue[(q.first+q.n)%len(q.queue)] = a
	q.n++
}

// Replies reports whether a reply is queued.
func (s *Sessions) Replies() bool { return s.replies.n > 0 }

// NextReply takes a reply from the queue, which must not be empty, writes its packet to b, and
// returns its destination and its length.
func (s *Sessions) NextReply(b []byte) (to wire.Addr, n int) {
	q := &s.replies
	a := &q.queue[q.first]
	q.first = (q.first + 1) % len(q.queue)
	q.n--
	s.Stats.Sent++
	k := wire.Packet{Type: a.Type, Slot: a.Slot, Token: a.Token, Stamp: s.Stamp(), Reset: a.Reset, Challenge: a.Challenge}
	return a.To, k.Encode(b)
}
