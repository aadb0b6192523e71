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

// admitted is the connection of an admitted client. It has a place until it closes, which also ends
// its turn to connect.
type admitted struct {
	net.Conn
	by       greet.Transport
	seal     greet.Seal
	connects *turn // nil: it needs none
	leave    func()
}

// SyscallConn implements [syscall.Conn].
func (a *admitted) SyscallConn() (syscall.RawConn, error) {
	if c, ok := a.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func (a *admitted) Close() error {
	err := a.Conn.Close()
	a.leave()
	return err
}

// room reports whether there is room for another client.
func (s *Server) room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.MaxClients == 0 || s.places < s.cfg.MaxClients
}

// admit admits a client, and reports whether it did. Otherwise the connection is still the caller's.
// The seal is of the client's greeting. The client's turn to connect ends when it has connected; nil
// means that it needs none.
func (s *Server) admit(conn net.Conn, t greet.Transport, seal greet.Seal, connects *turn) bool {
	s.mu.Lock()
	if s.closed || s.cfg.MaxClients > 0 && s.places >= s.cfg.MaxClients {
		s.mu.Unlock()
		return false
	}
	s.places++
	s.mu.Unlock()
	leave := sync.OnceFunc(func() {
		connects.over()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.places--
	})
	to := s.links
	if t != greet.RDMA {
		to = s.streams
	}
	if !to.put(&admitted{conn, t, seal, connects, leave}) {
		leave()
		return false
	}
	return true
}

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

// serveStream serves a client that cannot READ: everything is a call, so it gets no map.
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
