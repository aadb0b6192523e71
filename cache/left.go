package cache

import (
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/verbs"
)

// A call returns when its context ends, and its READs stay under way. Until they are over the
// device may write to their buffers, and the server has to reckon with them: a goroutine
// waits for them. It releases the buffers, and leaves the section, so that the session is
// not closed before.

// inFlight returns what err, which may join several, says is still under way.
func inFlight(err error) (left []*verbs.InFlightError) {
	switch e := err.(type) {
	case *verbs.InFlightError:
		left = append(left, e)
	case interface{ Unwrap() error }:
		left = inFlight(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			left = append(left, inFlight(part)...)
		}
	}
	return left
}

// afterwards calls f when what err says is still under way is over, and at once if that is
// nothing.
func afterwards(err error, f func()) {
	left := inFlight(err)
	if len(left) == 0 {
		f()
		return
	}
	go func() {
		for _, e := range left {
			<-e.Done()
		}
		f()
	}()
}

// releaseAfter releases a buffer after a READ into it ended with err. mu must be held.
func (s *session) releaseAfter(err error, b *buffer) {
	if len(inFlight(err)) == 0 {
		s.release(b)
		return
	}
	afterwards(err, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.release(b)
	})
}

// leaveAfter leaves a section after its last READ ended with err. If that READ is what the
// connection fails by, the session ends. mu must be held.
func (s *session) leaveAfter(err error, sec mirror.Section) {
	if len(inFlight(err)) == 0 {
		s.leave(sec)
		return
	}
	afterwards(err, func() {
		var cause error
		if s.through == nil {
			cause = s.reads.QP().Err()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if cause != nil {
			s.endNow(cause)
		}
		s.leave(sec)
	})
}
