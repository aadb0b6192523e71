package lockoffload

import (
	"math/bits"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// recovery takes back what sessions left behind, of all together that ended at a time
// and after their queue pairs were moved to where nothing late can execute. It is
// stepped by the target, whose own queue pair executes the lists: the lock of each slot
// that carries a tag of theirs, their bits among the readers, their tickets.
//
// It looks at each slot once, with the CPU, and posts requests for what it finds only,
// those of several slots together.
type recovery struct {
	work
	region []byte
	// dead tells of the identity in a tag whether it is one of theirs. What the
	// CPU sees of them stays, since nobody else changes that.
	dead    func(identity uint64) bool
	readers []uint64 // their bits among a slot's readers

	slot, end int // what is still to be looked at; end 0 is all
	settled   bool
	freed     int // locks, bits and tickets
	// queues are those in which there were tickets: some may be theirs that are not
	// signed.
	queues []ticketQueue
}

type ticketQueue struct {
	slot int
	next uint32
}

// deadSessions has a recovery look for sessions.
func (m *recovery) deadSessions(l *memory.Layout, sessions ...Invite) *recovery {
	gone := make(map[uint64]bool, len(sessions))
	m.readers = make([]uint64, l.ReadersSize()/8)
	for _, in := range sessions {
		gone[uint64(in.Owner)<<16|uint64(in.Epoch)] = true
		if l.HasReaderBit(in.Owner) {
			m.readers[(in.Owner-1)/64] |= 1 << ((in.Owner - 1) % 64)
		}
	}
	m.dead = func(identity uint64) bool { return gone[identity] }
	return m
}

// fullList is when a list is long enough: one slot may add its lock and a word of
// readers for each of 64 clients, and stops there.
const fullList = memory.LocalWords - 4

func (m *recovery) step() (verdict, error) {
	if m.end == 0 {
		m.end = m.l.Slots
	}
	m.begin()
	if !m.settled {
		// A queue pair that was reset takes no more requests, but what it was
		// writing may still be on its way through the bus. A READ of the
		// device pushes it in front of itself.
		m.read(m.l.LockOff(m.slot), 0, 8)
		m.settled = true
		return post, nil
	}
	for at := m.slot; at < m.end; at++ {
		if m.collect(at); len(m.ops) >= fullList {
			break
		} else if len(m.ops) == 0 {
			m.slot = at + 1 // others are looked at again, behind the list
		}
	}
	if len(m.ops) == 0 {
		return done, nil
	}
	return post, nil
}

func (m *recovery) undo() (verdict, error) { return done, nil }

// collect adds what is to be taken back in the slot.
func (m *recovery) collect(slot int) {
	if tag := memory.LoadWord(m.region, m.l.LockOff(slot)); tag != 0 && m.dead(memory.TagIdentity(tag)) {
		m.cmpSwap(m.l.LockOff(slot), tag, 0)
		m.freed++
	}
	for i, theirs := range m.readers {
		if len(m.ops) >= memory.LocalWords {
			return
		}
		if theirs == 0 {
			continue
		}
		off := m.l.ReadersOff(slot) + 8*i
		if left := memory.LoadWord(m.region, off) & theirs; left != 0 {
			m.fetchAdd(off, -left)
			m.freed += bits.OnesCount64(left)
		}
	}
	next, serving := memory.Tickets(memory.LoadWord(m.region, m.l.TicketOff(slot)))
	if next == serving {
		return
	}
	if n := len(m.queues); n == 0 || m.queues[n-1].slot != slot { // else looked at again
		m.queues = append(m.queues, ticketQueue{slot, m.l.Signable(next, serving)})
	}
	for i := range m.l.Places() {
		off := m.l.QueueOff(slot, uint32(i))
		if entry := memory.LoadWord(m.region, off); len(m.ops) < memory.LocalWords && entry != 0 && m.dead(memory.TagIdentity(entry)) {
			m.cmpSwap(off, entry, memory.SkipMark(uint32(entry)))
			m.freed++
		}
	}
}
