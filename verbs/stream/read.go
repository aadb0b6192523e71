package stream

import (
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// Read reads up to len(p) bytes, and waits while there are none. After the last byte of
// the peer it returns [io.EOF].
func (s *Conn) Read(p []byte) (int, error) {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	total := 0
	for {
		ring, err := s.peek(total == 0 && len(p) > 0)
		if err != nil && total == 0 {
			return 0, s.fault("read", err)
		}
		n := copy(p[total:], ring)
		if n == 0 {
			return total, nil
		}
		s.take(n)
		total += n
	}
}

// Peek returns bytes that have arrived, without taking them, and waits while there are
// none. They are in the ring, and valid until the next Read, Discard or Close. There may
// be more bytes, past the end of the ring.
func (s *Conn) Peek() ([]byte, error) {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	b, err := s.peek(true)
	if err != nil {
		return nil, s.fault("read", err)
	}
	return b, nil
}

// Discard takes n of the bytes that Peek returned.
func (s *Conn) Discard(n int) error {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	s.mu.Lock()
	from, to := s.flow.Readable()
	err := s.usable()
	s.mu.Unlock()
	switch {
	case err != nil:
		return s.fault("read", err)
	case n < 0 || uint64(n) > to-from:
		return operr.New("discard from", s.label(), verbs.ErrRange, n, " bytes of ", to-from)
	}
	s.take(n)
	return nil
}

// peek returns the next piece of the ring; without wait it may be empty. rmu
// must be held.
func (s *Conn) peek(wait bool) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wait {
		if err := s.await(&s.reader, &s.writer); err != nil {
			return nil, err
		}
	} else if s.closed {
		return nil, s.usable()
	}
	from, to := s.flow.Readable()
	return s.parts.ring.Bytes()[from:to], nil
}

// take frees n bytes of the ring and tells the peer when it is time.
func (s *Conn) take(n int) {
	s.mu.Lock()
	imm, ok := s.flow.Take(uint64(n))
	broken := s.err != nil
	s.mu.Unlock()
	if !ok || broken {
		return
	}
	s.drainSends()
	if err := s.post(s.credit, idCredit, verbs.Signaled, imm, s.peer.At(0)); err != nil {
		s.fail(err)
	}
}
