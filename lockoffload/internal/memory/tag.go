package memory

// A tag identifies the holder of a lock: owner 16 bits, epoch 16, sequence 31 and a mark.
// The client increments the sequence with each lock command; the server increments the
// epoch each time that it gives an owner number out. So an unlock command behind a lock
// command that failed compares with a tag that is not there.
//
// Tags do repeat: of a session after 2^31 lock commands, of an owner number after
// 2^16 sessions. The first matters to a lock that is held all that time, since the
// unlock command of a chain with the same tag on the same slot would give it back: six
// minutes at six million lock commands a second, of one client. The second does not: a
// session is fenced and recovered before its place is given out again, so nothing that
// carries its tags is left.
const (
	// ReadingTag marks, in the sequence, a holder that only reads: other
	// readers need not wait for it.
	ReadingTag = 1 << 31
	// ReservedTag marks, in the sequence of an agent's tag, a lock that has no holder: it is
	// a client's turn to take it. A lock that an agent holds never has the mark, so no client
	// that comes late with the word of an earlier agent takes it for its turn.
	ReservedTag = 1 << 30
	// AgentOwner is the owner number of the target's own agent. It is above
	// those of all clients.
	AgentOwner = 0xffff
)

func MakeTag(owner, epoch uint16, seq uint32) uint64 {
	return uint64(owner)<<48 | uint64(epoch)<<32 | uint64(seq)
}

// TagIdentity returns the part that all tags of a session have in common.
func TagIdentity(tag uint64) uint64 { return tag >> 32 }

// Tagger makes the tags of one session.
type Tagger struct {
	Owner, Epoch uint16
	// Count returns a number that is one more than the last one. nil: the tagger counts
	// itself, and is not for concurrent use.
	Count func() uint32
	seq   uint32
}

// Next returns a tag for one lock command.
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
