package link

import (
	"context"
	"net"

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
	// Post is Write where that takes no waiting, and tells whether it was.
	Post(ctx context.Context, b []byte) (bool, error)
}

// Post sends messages if that takes no waiting, and tells whether it did: never by a Conn that
// is no Poster.
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
	stream wire.Stream
}

// NewStream takes over a connection, which closes when ctx ends: so do calls of its methods.
// Messages that are longer than limit are refused.
func NewStream(ctx context.Context, conn net.Conn, limit int) *Stream {
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &Stream{conn: conn, stream: wire.Stream{Limit: limit}}
}

// Write is [Conn]'s.
func (s *Stream) Write(ctx context.Context, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := s.conn.Write(b)
	return because(ctx, err)
}

// Next is [Conn]'s.
func (s *Stream) Next(ctx context.Context) ([]byte, error) {
	for {
		if b, err := s.stream.Next(); b != nil || err != nil {
			return b, err
		}
		n, err := s.conn.Read(s.stream.Room(Frame))
		s.stream.Arrived(n)
		if n == 0 && err != nil {
			return nil, because(ctx, err)
		}
	}
}
