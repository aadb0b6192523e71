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
func (s *slotMemory) read(slot, record int) (current, error) {
	return decodePair(s.mem[s.recordOff(slot, record):][:s.recordSize()])
}

// write overwrites the copy that is not current.
func (s *slotMemory) write(slot, record int, old current, data []byte) {
	encode(s.mem[s.copyOff(slot, record, 1-old.which):][:s.copyStride()], old.version+1, data)
}
