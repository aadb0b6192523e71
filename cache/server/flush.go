package server

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// flushing is a flush that is not over: clients may still READ what it has removed. The longest that takes is a
// lease, after which a client that has not said that it has left the flush behind is cut off.
type flushing struct {
	seq  uint64
	over func()
}

// awaitFlush has over called, with s.mu held, when a flush is over. s.mu must be held.
func (s *Server) awaitFlush(seq uint64, over func()) {
	s.flushes = append(s.flushes, flushing{seq, over})
	s.askForFlushes()
}

// askForFlushes asks clients how far they are, every announceAfter while there are flushes that are
// not over. s.mu must be held.
func (s *Server) askForFlushes() {
	if len(s.flushes) == 0 || s.asking {
		return
	}
	s.askAll()
	s.asking = true
	time.AfterFunc(announceAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.asking = false; !s.closed {
			s.settleFlushes()
			s.askForFlushes()
		}
	})
}

// settleFlushes ends the flushes that are over. s.mu must be held.
func (s *Server) settleFlushes() {
	s.flushes = slices.DeleteFunc(s.flushes, func(f flushing) bool {
		if !s.store.Flushed(f.seq) {
			return false
		}
		f.over()
		return true
	})
}

// flushed waits until a flush is over.
func (s *Server) flushed(ctx context.Context, over <-chan struct{}) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cache: %w", ctx.Err())
	case <-s.stopped.Done():
		return fmt.Errorf("cache: %w", ErrClosed)
	}
}
