package place

// Set is a set of shards.
type Set [Shards]bool

// Append appends the set to dst, with a bit for each shard.
func (s *Set) Append(dst []byte) []byte {
	for i := 0; i < Shards; i += 8 {
		bits := byte(0)
		for k := range 8 {
			if s[i+k] {
				bits |= 1 << k
			}
		}
		dst = append(dst, bits)
	}
	return dst
}

// ReadSet returns the set that Append has written, and whether the bytes are one.
func ReadSet(src []byte) (s Set, ok bool) {
	if len(src) != Shards/8 {
		return s, false
	}
	for i := range s {
		s[i] = src[i/8]>>(i%8)&1 != 0
	}
	return s, true
}
