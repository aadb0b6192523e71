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

// admitted is the connection of a client that has proved its key. It has a place among the tenant's
// clients, also while it waits for its turn to connect; both end when the connection closes.
type admitted struct {
	net.Conn
	by       greet.Transport
	seal     greet.Seal
	connects *turn  // nil: it needs none
	leave    func() // gives back its place; nil: it has none
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
	a.connects.over()
	if a.leave != nil {
		a.leave()
	}
	return err
}

// maxConns is how many connections a client may have: one, one that replaces it, and one that has failed
// and is not known to have.
const maxConns = 3

// reserve gives a connection a place among the clients, or returns [greet.ErrFull]: see MaxClients of
// [Config]. Connections of one client share a place.
func (s *Server) reserve(c *admitted, id [16]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, limited := s.places[id], s.cfg.MaxClients > 0 && len(s.cfg.Key) > 0
	switch {
	case s.closed:
		return ErrClosed
	case limited && (n == 0 && len(s.places) >= s.cfg.MaxClients || n >= maxConns):
		return greet.ErrFull
	}
	s.places[id]++
	c.leave = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.places[id]--; s.places[id] == 0 {
			delete(s.places, id)
		}
	})
	return nil
}

// admit admits a client with a place, and reports whether it did. Otherwise the connection is still the
// caller's.
func (s *Server) admit(c *admitted) bool {
	if c.by == greet.RDMA {
		return s.links.put(c)
	}
	return s.streams.put(c)
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
