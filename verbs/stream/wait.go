package stream

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// A reader waits for bytes and a writer for credit, and both come over one
// completion queue. Whichever of the two waits first polls for both; it hands
// over when it leaves.

// waiter is one direction's side of that, under the stream's mu.
type waiter struct {
	wake    chan struct{} // holds a token when there is something to look at
	waiting bool
	expired bool
	timer   *time.Timer
	serial  int // of the deadline
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *waiter) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// ready reports whether a direction need not wait any more. mu must be held.
func (s *Conn) ready(w *waiter) bool {
	if w == &s.reader {
		return s.flow.Unread() > 0
	}
	return s.flow.Window() > 0
}

// await waits until a direction can go on, and polls for the other one too.
// The caller holds mu.
func (s *Conn) await(w, other *waiter) error {
	polled := false
	defer func() {
		if polled && other.waiting {
			other.signal() // it polls next
		}
	}()
	for {
		switch {
		case s.closed:
			return s.usable()
		case w.expired:
			return os.ErrDeadlineExceeded
		case s.ready(w):
			return nil
		case w == &s.reader && s.flow.Ended():
			return io.EOF
		case s.err != nil && (w == &s.writer || s.received):
			return s.err
		}
		if s.polling {
			w.waiting = true
			s.mu.Unlock()
			<-w.wake
			s.mu.Lock()
			w.waiting = false
			continue
		}
		s.polling, polled = true, true
		waits := s.waits
		s.mu.Unlock()
		n, err := s.parts.recvCQ.Wait(waits, s.wcs[:])
		if waits.Err() != nil {
			err = nil // an interrupt: look again
		}
		s.mu.Lock()
		s.polling = false
		s.receive(s.wcs[:n], err)
		if other.waiting && (s.ready(other) || s.err != nil || s.flow.Ended()) {
			other.signal()
		}
	}
}

// receive takes completions of messages and posts receives in their place. The
// caller holds mu.
func (s *Conn) receive(wcs []verbs.WC, err error) {
	for i := range wcs {
		if e := s.message(&wcs[i]); e != nil {
			s.received = true
			s.broken(e)
			return
		}
		s.recvs.Recv(0)
	}
	if err != nil {
		s.received = true
		s.broken(err)
		return
	}
	if _, err := s.recvs.Post(); err != nil {
		s.unusable(err)
	}
}

// message takes one message. The caller holds mu.
func (s *Conn) message(w *verbs.WC) error {
	if err := w.Err(); err != nil {
		return err
	}
	imm, ok := w.Imm()
	if !ok {
		return operr.New("receive", "stream", verbs.ErrMessage, "a message without immediate")
	}
	if err := s.flow.Received(imm, uint32(w.Len())); err != nil {
		return operr.New("receive", "stream", verbs.ErrMessage, err)
	}
	return nil
}

// broken notes why the connection does not work any more. What came before is still
// read: a queue pair in error flushes its receives, which are behind all messages, and
// that ends the reading. The caller holds mu.
func (s *Conn) broken(err error) {
	if s.err != nil {
		return
	}
	if errors.Is(err, verbs.WCFlushed) {
		// The queue pair was in error before: the peer has gone, or a work
		// request failed that has its completion in the other queue.
		err = operr.Class(syscall.ECONNRESET, err)
	}
	s.err = err
	s.wakeAll()
}

// unusable is broken after something could not be posted: the queue pair is in error
// already, or is moved there. The caller holds mu.
func (s *Conn) unusable(err error) {
	s.broken(err)
	if e := s.parts.qp.ToError(); e != nil { // nothing tells the reader that all has come
		s.received = true
	}
}

// fail is unusable for callers without mu.
func (s *Conn) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unusable(err)
	return s.err
}

// wakeAll makes all waiting calls look again. The caller holds mu.
func (s *Conn) wakeAll() {
	s.reader.signal()
	s.writer.signal()
	s.stop()
	s.waits, s.stop = context.WithCancel(context.Background())
}

// waitSends takes send completions that are there, and waits for one if there
// are none and block says so. It may return without any.
func (s *Conn) waitSends(waits context.Context, block bool) error {
	s.smu.Lock()
	defer s.smu.Unlock()
	n, err := s.parts.sendCQ.Poll(s.sendWCs[:])
	if block && n == 0 && err == nil {
		n, err = s.parts.sendCQ.Wait(waits, s.sendWCs[:])
		if waits.Err() != nil {
			err = nil // an interrupt
		}
	}
	return s.sendsDone(n, err)
}

// drainSends makes room in the send queue, unless another goroutine holds smu.
func (s *Conn) drainSends() {
	if s.smu.TryLock() {
		n, err := s.parts.sendCQ.Poll(s.sendWCs[:])
		s.sendsDone(n, err)
		s.smu.Unlock()
	}
}

// sendsDone takes completions. The caller holds smu.
func (s *Conn) sendsDone(n int, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sendWCs[:n] {
		w := &s.sendWCs[i]
		if e := w.Err(); e != nil {
			s.broken(e)
			return s.err
		}
		if w.ID() != idCredit {
			s.flow.Completed(w.ID())
		}
	}
	return err
}

// SetDeadline sets both deadlines; the zero time means none.
func (s *Conn) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline ends reads, also those that wait already, at t with
// [os.ErrDeadlineExceeded].
func (s *Conn) SetReadDeadline(t time.Time) error { return s.setDeadline(&s.reader, t) }

// SetWriteDeadline does the same for writes. Some of their bytes may have been
// sent.
func (s *Conn) SetWriteDeadline(t time.Time) error { return s.setDeadline(&s.writer, t) }

func (s *Conn) setDeadline(w *waiter, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return s.fault("set", err)
	}
	w.stop()
	w.serial++
	w.timer, w.expired = nil, false
	if t.IsZero() {
		return nil
	}
	left := time.Until(t)
	if left <= 0 {
		w.expired = true
		s.wakeAll()
		return nil
	}
	serial := w.serial
	w.timer = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.serial == serial && !s.closed {
			w.expired = true
			s.wakeAll()
		}
	})
	return nil
}
