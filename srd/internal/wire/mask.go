package wire

// Mask has a bit for each of Window consecutive numbers of a flow, at any place: its owner
// drops a number before the one that is Window further comes.
type Mask [SeenWords]uint64

// Has reports whether a number is in the mask.
func (m *Mask) Has(seq uint32) bool { return m[seq/64%SeenWords]>>(seq%64)&1 != 0 }

// Set puts a number in.
func (m *Mask) Set(seq uint32) { m[seq/64%SeenWords] |= 1 << (seq % 64) }

// Drop takes a number out.
func (m *Mask) Drop(seq uint32) { m[seq/64%SeenWords] &^= 1 << (seq % 64) }

// Word returns the bits of 64 numbers from seq on, the first one lowest.
func (m *Mask) Word(seq uint32) uint64 {
	i, shift := seq/64%SeenWords, seq%64
	return m[i]>>shift | m[(i+1)%SeenWords]<<(64-shift)
}

// Words writes the bits from a number on, as [Response] has them, and returns how many
// words there are up to the last with a bit set.
func (m *Mask) Words(seq uint32, to *[SeenWords]uint64) (n uint8) {
	for i := range to {
		if to[i] = m.Word(seq + uint32(64*i)); to[i] != 0 {
			n = uint8(i + 1)
		}
	}
	return n
}
