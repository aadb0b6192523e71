package wire

// Stream puts messages together that arrive in pieces of any length, in order.
type Stream struct {
	// Limit is the longest message that is taken; 0: [MaxMessage].
	Limit int

	b     []byte
	begin int // of what has not been handed out
}

// roomy is how many pieces a stream keeps room for while nothing has arrived.
const roomy = 4

// Room returns where the next piece goes, n bytes of it. It invalidates messages that were handed out.
func (s *Stream) Room(n int) []byte {
	if s.begin > 0 { // otherwise each piece of a long message would copy those before it
		s.b = s.b[:copy(s.b, s.b[s.begin:])]
		s.begin = 0
	}
	if len(s.b) == 0 && cap(s.b) > roomy*n { // after a long message
		s.b = nil
	}
	if cap(s.b)-len(s.b) < n {
		s.b = append(make([]byte, 0, 2*cap(s.b)+n), s.b...)
	}
	return s.b[len(s.b) : len(s.b)+n]
}

// Borrow gets a stream that has no memory some from lend, which may return none.
func (s *Stream) Borrow(lend func() []byte) {
	if s.b == nil {
		s.b = lend()[:0]
	}
}

// Return takes the memory of a stream in which nothing waits to be handed out or completed: nil if
// something does. It invalidates messages that were handed out.
func (s *Stream) Return() (b []byte) {
	if s.begin == len(s.b) {
		b, s.b, s.begin = s.b[:0], nil, 0
	}
	return b
}

// Arrived notes that n bytes of the room were filled.
func (s *Stream) Arrived(n int) { s.b = s.b[:len(s.b)+n] }

// Next returns the next message, or nil if there is none yet. It is a view that is good until Room is
// called. After an error nothing that follows can be made out.
func (s *Stream) Next() ([]byte, error) {
	rest := s.b[s.begin:]
	if len(rest) < HeaderSize {
		return nil, nil
	}
	h, err := ReadHeader(rest)
	switch {
	case err != nil:
		return nil, err
	case s.Limit > 0 && h.Length > s.Limit:
		return nil, Malformed
	case len(rest) < h.Length:
		return nil, nil
	}
	s.begin += h.Length
	return rest[:h.Length:h.Length], nil
}

// Whole returns the length of the first of the caller's own messages in b: as many as it takes to have
// n bytes, or all.
func Whole(b []byte, n int) int {
	at := 0
	for at < len(b) && at < n {
		h, err := ReadHeader(b[at:])
		if err != nil {
			return len(b)
		}
		at += h.Length
	}
	return min(at, len(b))
}
