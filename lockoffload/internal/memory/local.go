package memory

// Who works on a slot from afar has local memory for it: the results of LocalWords
// atomics, the readers' words, both copies as they were read, the copy to be written. The
// offsets below are in it.
const LocalWords = 16

// LocalSize is how much that is, in bytes.
func (l *Layout) LocalSize() int { return l.WriteAt() + l.CopyStride() }

// ReadersAt is right before the copies, as in the region.
func (l *Layout) ReadersAt() int { return l.PairAt() - l.ReadersSize() }
func (l *Layout) PairAt() int    { return align(LocalWords*8+l.ReadersSize(), lineSize) }
func (l *Layout) WriteAt() int   { return l.PairAt() + l.PairSize() }
