package lockoffload

// slotMemory is a region as its agent sees it. Lock words are only named here;
// records are read and written with the CPU, which an agent does only while it
// holds their slot's lock: they are no lock words, and no one-sided client that
// keeps the rules touches them meanwhile.
type slotMemory struct {
	Layout
	mem   []byte
	epoch uint16 // of the agent's tags
}

// tag is for one lock command, the n-th.
func (s *slotMemory) tag(n uint32, reading bool) uint64 {
	n &^= readingTag
	if reading {
		n |= readingTag
	}
	return makeTag(agentOwner, s.epoch, n)
}

// read answers what is current. The data is part of mem.
func (s *slotMemory) read(slot int) (current, error) {
	return s.decodePair(s.mem[s.pairOff(slot):][:s.pairSize()])
}

// change stages the next copy over the one that is not current, which readers take
// for torn from then on until it is sealed.
func (s *slotMemory) change(slot int, old *current) []byte {
	dst := s.mem[s.copyOff(slot, 1-old.which):][:s.copyStride()]
	s.stage(dst, old)
	return dst
}
