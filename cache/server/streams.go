package server

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
)

// serveStreams serves the clients that connect by TCP, until ctx ends.
func (s *Server) serveStreams(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = s.streams.Close() })()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := s.streams.Accept()
		if err != nil {
			return
		}
		clients.Go(func() {
			err := s.serveAdmitted(ctx, conn.(*admitted))
			if ctx.Err() == nil && err != nil && !hungUp(err) {
				s.ended(conn.RemoteAddr(), err)
			}
		})
	}
}

func (s *Server) serveAdmitted(ctx context.Context, conn *admitted) error {
	if conn.by == greet.DC {
		return s.serveThrough(ctx, conn)
	}
	return s.serveStream(ctx, conn)
}

// serveStream serves a client that cannot READ: everything is an RPC, so it gets no map.
func (s *Server) serveStream(ctx context.Context, conn net.Conn) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	defer conn.Close()
	id, c := s.attach(cut, false)
	if c == nil {
		return ErrClosed
	}
	defer s.detach(id)
	return s.talk(ctx, link.NewStream(ctx, conn, s.maxRequest()), id, c)
}

// hungUp reports whether an error is the end of a connection that the client has closed.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}
