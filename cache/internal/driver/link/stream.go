package link

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// Conn carries messages. One goroutine at a time writes, and one reads.
type Conn interface {
	// Write sends whole messages. After an error the connection is of no use.
	Write(ctx context.Context, b []byte) error
	// Next waits for a message. It is good until the next call.
	Next(ctx context.Context) ([]byte, error)
}

// Poster is a Conn that may send without waiting.
type Poster interface {
	Conn
	// Post is Write where that takes no waiting, and reports whether it sent.
	Post(ctx context.Context, b []byte) (bool, error)
}

// Post sends messages if that takes no waiting, and reports whether it did: never if c is no Poster.
func Post(ctx context.Context, c Conn, b []byte) (bool, error) {
	if p, ok := c.(Poster); ok {
		return p.Post(ctx, b)
	}
	return false, nil
}

// Send sends messages, and waits for that if it has to.
func Send(ctx context.Context, c Conn, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if sent, err := Post(ctx, c, b); sent || err != nil {
		return err
	}
	return c.Write(ctx, b)
}

// Stream carries messages over TCP.
type Stream struct {
	conn   net.Conn
	watch  *watch
	stream wire.Stream
	torn   bool          // a message was written in part
	ended  func() bool   // has ctx not end calls any more, unless it does already
	over   chan struct{} // closed when it has
}

// NewStream takes over a connection, which closes when ctx ends: so do calls of its methods.
// Messages that are longer than limit are refused.
func NewStream(ctx context.Context, conn net.Conn, limit int) *Stream {
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &Stream{conn: conn, watch: newWatch(conn), stream: wire.Stream{Limit: limit}}
}

// NewPartingStream is NewStream for a caller that sends a last message: calls end with ctx, and the
// connection stays open until [Stream.Part].
func NewPartingStream(ctx context.Context, conn net.Conn, limit int) *Stream {
	s := &Stream{conn: conn, watch: newWatch(conn), stream: wire.Stream{Limit: limit}, over: make(chan struct{})}
	s.ended = context.AfterFunc(ctx, func() {
		defer close(s.over)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	return s
}

// errTorn: the last message would become a part of another one.
var errTorn = errors.New("the last message was written in part")

// Part sends the last message within most, if all messages before were written whole, and closes the
// connection. No other goroutine may use the stream any more.
func (s *Stream) Part(b []byte, most time.Duration) error {
	if !s.ended() {
		<-s.over
	}
	err := errTorn
	if !s.torn {
		_ = s.conn.SetDeadline(time.Now().Add(most))
		_, err = s.conn.Write(b)
	}
	return errors.Join(err, s.conn.Close())
}

// Write implements [Conn].
func (s *Stream) Write(ctx context.Context, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	s.watch.sent()
	n, err := s.conn.Write(b)
	s.torn = s.torn || 0 < n && n < len(b)
	return because(ctx, s.watch.because(err))
}

// Next implements [Conn].
func (s *Stream) Next(ctx context.Context) ([]byte, error) {
	for {
		if b, err := s.stream.Next(); b != nil || err != nil {
			return b, err
		}
		n, err := s.conn.Read(s.stream.Room(Frame))
		s.stream.Arrived(n)
		if n == 0 && err != nil {
			return nil, because(ctx, s.watch.because(err))
		}
	}
}
