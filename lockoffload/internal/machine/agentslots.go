package machine

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// AgentSlots is a region as its agent sees it. It neither reads nor writes lock words, and
// only reads readers' bits. It reads and writes records with the CPU, which an agent does
// only while it holds their slot's lock: they are no lock words, and no one-sided client
// that keeps the rules touches them meanwhile.
type AgentSlots struct {
	memory.Layout
	mem   []byte
	epoch uint16 // of the agent's tags
	known []knownSlot
	sums  uint64 // times that copies were checked
}

// knownSlot is a slot with two copies that were valid when they had these heads. While
// they have, the current copy still is the one that was checked: it is written again
// only when the other one has a higher version. So a client that has one large slot
// compared again and again does not keep the agent busy with checksums.
type knownSlot struct {
	slot  int // from 1 on
	heads [2][memory.HeaderSize]byte
}

// maxKnown bounds the slots that are remembered, of those that share a place the last one.
const maxKnown = 4096

func NewAgentSlots(l memory.Layout, mem []byte, epoch uint16) AgentSlots {
	return AgentSlots{Layout: l, mem: mem, epoch: epoch, known: make([]knownSlot, min(l.Slots, maxKnown))}
}

// tag returns the tag for the n-th lock command.
func (s *AgentSlots) tag(n uint32, reading bool) uint64 {
	n &^= memory.ReadingTag | memory.ReservedTag
	if reading {
		n |= memory.ReadingTag
	}
	return memory.MakeTag(memory.AgentOwner, s.epoch, n)
}

// reservation returns the word with which the n-th lock command reserves a lock.
func (s *AgentSlots) reservation(n uint32) uint64 { return s.tag(n, false) | memory.ReservedTag }

// anyReader looks for readers of a slot, with the CPU, behind the completion of the lock
// command. A reader sets its bit before it looks at the lock, and one of the two sees the
// other. For a device writes to memory in order, what atomics of all queue pairs leave there
// and completions alike: a bit that was written before the lock is here when the lock
// command's completion is; and a reader that wrote it later reads the lock word behind that.
func (s *AgentSlots) anyReader(slot int) bool {
	return anyBits(s.mem[s.ReadersOff(slot):][:s.ReadersSize()])
}

// read returns the slot's current data, which is part of mem.
func (s *AgentSlots) read(slot int) (memory.Current, error) {
	pair := s.mem[s.PairOff(slot):][:s.PairSize()]
	if k := &s.known[slot%len(s.known)]; k.slot == slot+1 && k.heads == s.heads(slot) {
		return s.TrustPair(pair), nil
	}
	s.sums++
	cur, err := s.DecodePair(pair)
	if err == nil && cur.Whole {
		s.remember(slot)
	}
	return cur, err
}

// remember records the heads of a slot's copies, which must both be valid.
func (s *AgentSlots) remember(slot int) {
	s.known[slot%len(s.known)] = knownSlot{slot + 1, s.heads(slot)}
}

func (s *AgentSlots) heads(slot int) [2][memory.HeaderSize]byte {
	return [2][memory.HeaderSize]byte{
		[memory.HeaderSize]byte(s.mem[s.CopyOff(slot, 0):]), [memory.HeaderSize]byte(s.mem[s.CopyOff(slot, 1):]),
	}
}

// change stages the next copy over the one that is not current, which readers take
// for torn from then on until it is sealed.
func (s *AgentSlots) change(slot int, old *memory.Current) []byte {
	dst := s.mem[s.CopyOff(slot, 1-old.Which):][:s.CopyStride()]
	s.Stage(dst, old)
	return dst
}

// changed ends the construction of a copy, beside the one that was read.
func (s *AgentSlots) changed(slot int, dst []byte, version uint64) {
	s.Seal(dst, version)
	s.remember(slot)
}
