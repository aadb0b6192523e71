package machine

import (
	"math/bits"
	"slices"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// Recovery takes back locks that ended sessions left behind, for several sessions together:
// the lock of each slot that carries a tag of theirs, and their bits among the readers.
// Their queue pairs must be in a state in which no late request can execute. The target
// drives it through its own queue pair.
//
// It looks at each slot once, with the CPU, and posts requests only for what it finds,
// those of several slots together.
//
// Where a WRITE was executed in part, the copy loses its head, or the next WRITE over it
// might complete the one that did not happen. The lock of such a slot is given back
// after a pause, which is to be twice as long as ReadTime: see Reader.
type Recovery struct {
	Work
	Region []byte
	// Dead reports whether the identity in a tag is one of theirs. What the CPU sees of
	// them stays, since no other client changes it.
	Dead    func(identity uint64) bool
	Readers []uint64 // their bits among a slot's readers

	Slot, End int // what is still to be looked at; end 0 is all
	settled   bool
	agents    bool  // they are agents, which change copies as a whole
	pieces    []int // slots with a copy in pieces; their locks stay until after the pause
	paused    bool
	Freed     int // locks and bits
}

// Identity identifies a session.
type Identity struct{ Owner, Epoch uint16 }

// DeadSessions has the recovery look for locks of sessions, and returns it.
func (m *Recovery) DeadSessions(l *memory.Layout, sessions ...Identity) *Recovery {
	gone := make(map[uint64]bool, len(sessions))
	m.Readers = make([]uint64, l.ReadersSize()/8)
	for _, in := range sessions {
		gone[uint64(in.Owner)<<16|uint64(in.Epoch)] = true
		if l.HasReaderBit(in.Owner) {
			m.Readers[(in.Owner-1)/64] |= 1 << ((in.Owner - 1) % 64)
		}
	}
	m.Dead = func(identity uint64) bool { return gone[identity] }
	return m
}

// fullList is when a list is long enough: one slot may add its lock and a word of
// readers for each of 64 clients, and stops there.
const fullList = memory.LocalWords - 4

func (m *Recovery) Step() (Verdict, error) {
	if m.End == 0 {
		m.End = m.L.Slots
	}
	if !m.settled {
		m.settled = true
		m.Settle()
		return Post, nil
	}
	m.begin()
	for scan := m.L.Scan(); ; m.Slot++ {
		if m.Slot = scan.Busy(m.Region, m.Slot, m.End, m.Readers); m.Slot == m.End {
			break
		}
		// What it finds stays until it is taken back, since no other client changes it. So
		// only the slot that fills a list is looked at again, behind it.
		if m.collect(m.Slot); len(m.Ops) >= fullList {
			break
		}
	}
	if len(m.Ops) == 0 && len(m.pieces) > 0 && !m.paused {
		m.paused = true
		return Sleep, nil
	}
	for ; m.paused && len(m.pieces) > 0 && len(m.Ops) < fullList; m.pieces = m.pieces[1:] {
		m.unlock(m.pieces[0], memory.LoadWord(m.Region, m.L.LockOff(m.pieces[0])))
	}
	if len(m.Ops) == 0 {
		return Done, nil
	}
	return Post, nil
}

func (m *Recovery) Undo() (Verdict, error) { return Done, nil }

// collect adds what is to be taken back in the slot.
func (m *Recovery) collect(slot int) {
	again := len(m.pieces) > 0 && m.pieces[len(m.pieces)-1] == slot
	if tag := memory.LoadWord(m.Region, m.L.LockOff(slot)); tag != 0 && m.Dead(memory.TagIdentity(tag)) && !again {
		if !m.agents && m.dropFirst(slot) {
			m.pieces = append(m.pieces, slot)
		} else {
			m.unlock(slot, tag)
		}
	}
	for i, theirs := range m.Readers {
		if len(m.Ops) >= memory.LocalWords {
			return
		}
		off := m.L.ReadersOff(slot) + 8*i
		if left := memory.LoadWord(m.Region, off) & theirs; left != 0 {
			m.fetchAdd(off, -left)
			m.Freed += bits.OnesCount64(left)
		}
	}
}

// unlock gives a lock back, unless a client has taken one that was reserved for it meanwhile.
func (m *Recovery) unlock(slot int, tag uint64) {
	m.cmpSwap(m.L.LockOff(slot), tag, 0)
	m.Freed++
}

// dropFirst adds a WRITE over the head of the copy that is in pieces, and reports whether
// there is one. Its head may be clear already, if an earlier recovery came so far.
func (m *Recovery) dropFirst(slot int) bool {
	cur, err := m.L.DecodePair(m.Region[m.L.PairOff(slot):][:m.L.PairSize()])
	if err != nil || cur.Whole {
		return false
	}
	clear(m.Next()[:memory.HeaderSize])
	m.Ops = append(m.Ops, Op{Kind: OpWrite, Off: m.L.CopyOff(slot, 1-cur.Which), At: m.L.WriteAt(), N: memory.HeaderSize})
	return true
}

// SessionsRecovery returns a recovery of all that sessions left, in a region that has none.
func SessionsRecovery(l *memory.Layout, region []byte) *Recovery {
	return &Recovery{
		Region: region, Readers: slices.Repeat([]uint64{1<<64 - 1}, l.ReadersSize()/8),
		Dead: func(identity uint64) bool { return identity>>16 != memory.AgentOwner },
	}
}

// AgentRecovery returns a recovery of the locks that agents left. It touches no data: a lock
// that an agent has reserved, a live client may take at the same time, and write under it.
func AgentRecovery(region []byte) *Recovery {
	return &Recovery{Region: region, agents: true, Dead: func(identity uint64) bool { return identity>>16 == memory.AgentOwner }}
}
