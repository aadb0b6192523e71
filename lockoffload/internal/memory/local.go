package memory

// The local memory for remote work on a slot has the results of LocalWords atomics, the
// readers' words, both copies as they were read, and the copy to be written. The offsets
// below are in it.
const LocalWords = 16

// LocalSize returns the size of the local memory, in bytes.
func (l *Layout) LocalSize() int { return l.WriteAt() + l.CopyStride() }

// ReadersAt returns an offset right before the copies, as in the region.
func (l *Layout) ReadersAt() int { return l.PairAt() - l.ReadersSize() }
func (l *Layout) PairAt() int    { return align(LocalWords*8+l.ReadersSize(), lineSize) }
func (l *Layout) WriteAt() int   { return l.PairAt() + l.PairSize() }
