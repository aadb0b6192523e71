package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream/internal/flow"
	"github.com/goverbs/goverbs/verbs/stream/internal/wire"
)

// Conn is a byte stream over a connected queue pair: a [net.Conn] for programs that use
// one. Bytes are copied into registered memory, written by the device into the peer's
// ring, and copied from there by the peer's Read; Reserve and Commit, Peek and Discard
// avoid the copies. Read and Write allocate nothing.
//
// Write returns when the bytes are on their way, like a socket's, and waits
// while the peer does not read. Reading and writing may go on at the same time;
// several readers or several writers wait for each other.
type Conn struct {
	cm     *rdmacm.CM
	conn   *rdmacm.Conn
	parts  parts
	peer   verbs.Region
	local  net.Addr
	remote net.Addr

	rmu sync.Mutex // one reader
	wmu sync.Mutex // one writer
	smu sync.Mutex // one polls the send completions

	credit   *verbs.Batch // of the reader
	data     *verbs.Batch // of the writer
	reserved []byte
	wrote    time.Time // when data was last sent
	finSent  bool

	mu       sync.Mutex
	flow     *flow.Flow
	recvs    *verbs.RecvBatch
	err      error // why the connection is broken
	received bool  // nothing more comes from the receive queue
	closed   bool
	polling  bool
	waits    context.Context // of polls that wait; an interrupt ends it, and makes the next one
	stop     context.CancelFunc
	reader   waiter
	writer   waiter
	wcs      [16]verbs.WC // owned by the goroutine that polls
	sendWCs  [16]verbs.WC // guarded by smu
	shut     sync.Once
	shutErr  error
}

// Most bytes in one message: the peer begins to read while the rest is copied.
const chunk = 64 << 10

// How long a stream that closes waits for the peer's device to have everything, and how
// long for the end of a stream on which nothing else is under way.
const (
	lingering   = 2 * time.Second
	endsQuickly = 5 * time.Millisecond
)

// post posts a message. If the queue is full, of messages that are done but have
// completions still to be polled, it waits until there is room.
func (s *Conn) post(b *verbs.Batch, id uint64, flags verbs.SendFlags, imm uint32, to verbs.Remote, data ...verbs.SGE) error {
	for {
		b.WriteImm(id, flags, imm, to, data...)
		_, err := b.Post()
		if err == nil || !errors.Is(err, verbs.ErrQueueFull) {
			return err
		}
		s.mu.Lock()
		broken := s.err
		s.mu.Unlock()
		if broken != nil {
			return broken
		}
		s.drainSends()
		time.Sleep(20 * time.Microsecond) // a writer may have them
	}
}

// idCredit is the number of messages that give back credit.
const idCredit = 1 << 63

// Write writes all of p, or fails; it returns how many bytes are on their way.
func (s *Conn) Write(p []byte) (int, error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	total := 0
	for {
		b, err := s.reserve(len(p) - total)
		if err != nil {
			return total, s.fault("write", err)
		}
		if len(b) == 0 {
			return total, nil
		}
		n := copy(b, p[total:])
		if err := s.commit(n, false); err != nil {
			return total, s.fault("write", err)
		}
		total += n
	}
}

// Reserve returns up to n bytes of the send buffer, at least one, to be filled and sent
// by Commit. It waits while there is no room here or at the peer. The bytes are valid
// until Commit or Close. Until Commit nothing else can be written.
func (s *Conn) Reserve(n int) ([]byte, error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if n <= 0 {
		return nil, operr.New("reserve in", s.label(), verbs.ErrRange, n, " bytes")
	}
	b, err := s.reserve(n)
	if err != nil {
		return nil, s.fault("write", err)
	}
	s.reserved = b
	return b, nil
}

// Commit sends the first n of the reserved bytes and gives back the others.
func (s *Conn) Commit(n int) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.mu.Lock()
	err := s.usable()
	s.mu.Unlock()
	if err != nil {
		return s.fault("write", err)
	}
	if n < 0 || n > len(s.reserved) {
		return operr.New("commit to", s.label(), verbs.ErrRange, n, " bytes; reserved are ", len(s.reserved))
	}
	s.reserved = nil
	if n == 0 {
		return nil
	}
	if err := s.commit(n, false); err != nil {
		return s.fault("write", err)
	}
	return nil
}

// reserve waits for room. The caller holds wmu.
func (s *Conn) reserve(want int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, s.usable()
	case s.reserved != nil:
		return nil, operr.New("reserve in", s.label(), verbs.ErrInUse, "reserved bytes wait for Commit")
	case s.finSent:
		return nil, syscall.EPIPE
	}
	for {
		if err := s.writable(); err != nil || want == 0 {
			return nil, err
		}
		window, room := s.flow.Window(), s.flow.Room()
		if room < uint64(want) {
			waits := s.waits
			s.mu.Unlock()
			err := s.waitSends(waits, room == 0 && window > 0)
			s.mu.Lock()
			if err != nil {
				return nil, err
			}
			room = s.flow.Room()
		}
		if n := min(window, room, uint64(want), chunk); n > 0 {
			from, _ := s.flow.Next()
			return s.parts.buffer.Bytes()[from : from+n], nil
		}
		if window == 0 {
			if err := s.await(&s.writer, &s.reader); err != nil {
				return nil, err
			}
		}
	}
}

// commit posts the message of the n bytes that reserve returned. wmu must be
// held.
func (s *Conn) commit(n int, last bool) error {
	s.mu.Lock()
	if err := s.err; err != nil {
		s.mu.Unlock()
		return err
	}
	from, to := s.flow.Next()
	id, signal := s.flow.Send(uint64(n), last)
	s.mu.Unlock()
	var flags verbs.SendFlags
	if signal {
		flags = verbs.Signaled
	}
	var err error
	if last {
		err = s.post(s.data, id, flags, wire.Fin, s.peer.At(0))
	} else {
		s.wrote = time.Now()
		err = s.post(s.data, id, flags, uint32(n), s.peer.At(to), s.parts.buffer.SGE(int(from), n))
	}
	if err != nil {
		return s.fail(err)
	}
	return nil
}

// CloseWrite tells the peer that no more bytes will come; its Read returns [io.EOF] after
// the last one. Reading goes on.
func (s *Conn) CloseWrite() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.mu.Lock()
	err := s.usable()
	s.mu.Unlock()
	if err == nil {
		err = s.finish()
	}
	return s.fault("close", err)
}

func (s *Conn) finish() error {
	if s.finSent {
		return nil
	}
	s.finSent, s.reserved = true, nil
	return s.commit(0, true)
}

// Close ends both directions. Written bytes reach the peer, if it is there; unread bytes
// are dropped. Calls under way, and later ones, return [net.ErrClosed]. If something was
// written in the last two seconds, Close waits until the peer's device has it, or for two
// seconds; otherwise it does not wait for the peer, which may be gone. Closing twice is not
// an error.
func (s *Conn) Close() error {
	s.shut.Do(func() { s.shutErr = s.close() })
	return s.shutErr
}

func (s *Conn) close() error {
	s.mu.Lock()
	s.closed = true
	s.wakeAll()
	s.mu.Unlock()
	s.rmu.Lock()
	defer s.rmu.Unlock()
	s.wmu.Lock()
	defer s.wmu.Unlock()
	finished := s.finish() == nil
	s.reader.stop()
	s.writer.stop()
	if !finished {
		return s.free()
	}
	if time.Since(s.wrote) < lingering {
		s.linger(lingering)
		return s.free()
	}
	if s.linger(endsQuickly) {
		return s.free()
	}
	rdmacm.Linger(s.cm, func() {
		s.linger(lingering)
		if err := s.free(); err != nil {
			s.cm.Logger().Error("close stream", "peer", s.remote, "err", err)
		}
	})
	return nil
}

// free closes what the stream is made of. The queue pair goes between the connection, which
// still moves it, and the rest.
func (s *Conn) free() error { return errors.Join(s.conn.Close(), s.parts.close()) }

// linger waits until the peer's device has everything, or the stream is broken, and reports
// whether that is so.
func (s *Conn) linger(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for {
		s.mu.Lock()
		over := s.flow.AllDone() || s.err != nil
		s.mu.Unlock()
		if over {
			return true
		}
		s.smu.Lock()
		n, err := s.parts.sendCQ.Wait(ctx, s.sendWCs[:])
		s.sendsDone(n, err)
		s.smu.Unlock()
		if err != nil {
			return ctx.Err() == nil
		}
	}
}

func (s *Conn) label() string { return "stream to " + s.remote.String() }

// LocalAddr is the address of this side; its network is "rdma".
func (s *Conn) LocalAddr() net.Addr { return s.local }

// RemoteAddr is the address of the peer.
func (s *Conn) RemoteAddr() net.Addr { return s.remote }

// Conn is the connection under the stream.
func (s *Conn) Conn() *rdmacm.Conn { return s.conn }

// fault dresses an error as package net does.
func (s *Conn) fault(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "rdma", Source: s.local, Addr: s.remote, Err: err}
}

// usable is the error of a stream that is closed. The caller holds mu.
func (s *Conn) usable() error {
	if s.closed {
		return operr.Class(net.ErrClosed, verbs.ErrClosed)
	}
	return nil
}

// writable is the error that a writer gets at once. The caller holds mu.
func (s *Conn) writable() error {
	switch {
	case s.closed:
		return s.usable()
	case s.writer.expired:
		return os.ErrDeadlineExceeded
	case s.err != nil:
		return s.err
	}
	select {
	case <-s.conn.Done():
		return operr.Class(syscall.EPIPE, s.conn.Err())
	default:
		return nil
	}
}
