package cache

import (
	"math/bits"

	"github.com/goverbs/goverbs/verbs"
)

// Buffers are registered memory that READs go to, of sizes that are powers of two. They
// are made when they are needed, kept, and freed with the session: as many as READs were
// under way at a time.
const (
	smallest = 12 // 4 KiB
	classes  = 20 // up to 2 GiB
	slab     = 64 << 10
)

type buffer struct {
	mr    *verbs.MR
	off   int
	class int
	next  *buffer
}

func (b *buffer) bytes(n int) []byte { return b.mr.Bytes()[b.off : b.off+n] }

func classOf(n int) int { return max(bits.Len(uint(max(n, 1)-1)), smallest) - smallest }

// buffer returns a buffer of n bytes at least. mu must be held; it is released while memory is registered.
func (s *session) buffer(n int) (*buffer, error) {
	class := classOf(n)
	if b := s.free[class]; b != nil {
		s.free[class], b.next = b.next, nil
		return b, nil
	}
	size := 1 << (class + smallest)
	s.mu.Unlock()
	mr, err := s.register(size)
	s.mu.Lock()
	if err != nil {
		return nil, err
	}
	for off := size; off < mr.Len(); off += size {
		s.free[class] = &buffer{mr, off, class, s.free[class]}
	}
	return &buffer{mr: mr, class: class}, nil
}

// register registers memory for one buffer at least, which is registered until the session has ended.
func (s *session) register(size int) (*verbs.MR, error) {
	if s.through != nil {
		return s.through.register(max(size, throughSlab))
	}
	return s.link.AllocMR(max(size, slab), verbs.MRConfig{})
}

func (s *session) release(b *buffer) {
	b.next, s.free[b.class] = s.free[b.class], b
}
