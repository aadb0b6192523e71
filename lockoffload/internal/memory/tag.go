package memory

// A tag says whose a lock is: owner 16 bits, epoch 16, sequence 31 and a mark. The
// client counts the sequence up with each lock command; the server counts the epoch up
// each time that it gives an owner number out. So an unlock command behind a lock
// command that failed compares with a tag that is not there.
//
// Tags do come again: of a session after 2^31 lock commands, of an owner number after
// 2^16 sessions. The first matters to a lock that is held all that time, since the
// unlock command of a chain with the same tag on the same slot would give it back: six
// minutes at six million lock commands a second, of one client. The second does not: a
// session is fenced and recovered before its place is given out again, so nothing that
// carries its tags is left.
const (
	// ReadingTag marks, in the sequence, a holder that only reads: other
	// readers need not wait for it.
	ReadingTag = 1 << 31
	// ReservedTag marks, in the sequence of an agent's tag, a lock that nobody holds: it is
	// a client's turn to take it. What an agent holds never has the mark, so no client that
	// comes late with the word of an agent before takes it for its turn.
	ReservedTag = 1 << 30
	// AgentOwner is the owner number of the target's own agent. It is above
	// those of all clients.
	AgentOwner = 0xffff
)

func MakeTag(owner, epoch uint16, seq uint32) uint64 {
	return uint64(owner)<<48 | uint64(epoch)<<32 | uint64(seq)
}

// TagIdentity is the part of a tag, or of an entry in the queue of tickets,
// that is the same for all of a session.
func TagIdentity(tag uint64) uint64 { return tag >> 32 }

// Tagger makes the tags of one session.
type Tagger struct {
	Owner, Epoch uint16
	// Count answers another number each time, one more than the last one. nil: the
	// tagger counts itself, and is not for concurrent use.
	Count func() uint32
	seq   uint32
}

// Next is a tag for one lock command.
func (t *Tagger) Next(reading bool) uint64 {
	seq := t.sequence() &^ ReadingTag
	if reading {
		seq |= ReadingTag
	}
	return MakeTag(t.Owner, t.Epoch, seq)
}

func (t *Tagger) sequence() uint32 {
	if t.Count != nil {
		return t.Count()
	}
	t.seq++
	return t.seq
}

// A word in the queue of tickets is 0, or owner 16 | epoch 16 | ticket 32, or
// the mark that the ticket is to be skipped, whose owner is 0 and epoch 1.

func QueueEntry(owner, epoch uint16, ticket uint32) uint64 { return MakeTag(owner, epoch, ticket) }
func SkipMark(ticket uint32) uint64                        { return MakeTag(0, 1, ticket) }
func IsSkipMark(entry uint64) bool                         { return TagIdentity(entry) == 1 }

// Tickets splits the ticket word. Next is in the high half, where the carry of
// FETCH_ADD falls off.
func Tickets(word uint64) (next, serving uint32) { return uint32(word >> 32), uint32(word) }

const TakeTicket = 1 << 32

// Signable is the end of those tickets before next that have a place of their own in the
// queue; those behind come too long after the one that is being served.
func (l *Layout) Signable(next, serving uint32) uint32 {
	if last := serving + uint32(l.Places()); int32(next-last) > 0 {
		return last
	}
	return next
}

// PassTicket is what to add so that the ticket after one is served. The carry
// of the last ticket must not reach the high half.
func PassTicket(ticket uint32) uint64 {
	if ticket == 1<<32-1 {
		return 1<<64 - TakeTicket + 1
	}
	return 1
}
