package lockoffload

import "sync/atomic"

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
	// readingTag marks, in the sequence, a holder that only reads: other
	// readers need not wait for it.
	readingTag = 1 << 31
	// agentOwner is the owner number of the target's own agent. It is above
	// those of all clients.
	agentOwner = 0xffff
)

func makeTag(owner, epoch uint16, seq uint32) uint64 {
	return uint64(owner)<<48 | uint64(epoch)<<32 | uint64(seq)
}

// tagIdentity is the part of a tag, or of an entry in the queue of tickets,
// that is the same for all of a session.
func tagIdentity(tag uint64) uint64 { return tag >> 32 }

// tagger makes the tags of one session.
type tagger struct {
	owner, epoch uint16
	seq          atomic.Uint32
}

// next is a tag for one lock command.
func (t *tagger) next(reading bool) uint64 {
	seq := t.seq.Add(1) &^ readingTag
	if reading {
		seq |= readingTag
	}
	return makeTag(t.owner, t.epoch, seq)
}

// A word in the queue of tickets is 0, or owner 16 | epoch 16 | ticket 32, or
// the mark that the ticket is to be skipped, whose owner is 0 and epoch 1.

func queueEntry(owner, epoch uint16, ticket uint32) uint64 { return makeTag(owner, epoch, ticket) }
func skipMark(ticket uint32) uint64                        { return makeTag(0, 1, ticket) }
func isSkipMark(entry uint64) bool                         { return tagIdentity(entry) == 1 }

// tickets splits the ticket word. Next is in the high half, where the carry of
// FETCH_ADD falls off.
func tickets(word uint64) (next, serving uint32) { return uint32(word >> 32), uint32(word) }

const takeTicket = 1 << 32

// signable is the end of those tickets before next that have a place of their own in the
// queue; those behind come too long after the one that is being served.
func (l *Layout) signable(next, serving uint32) uint32 {
	if last := serving + uint32(l.places()); int32(next-last) > 0 {
		return last
	}
	return next
}

// passTicket is what to add so that the ticket after one is served. The carry
// of the last ticket must not reach the high half.
func passTicket(ticket uint32) uint64 {
	if ticket == 1<<32-1 {
		return 1<<64 - takeTicket + 1
	}
	return 1
}
