package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/goverbs/goverbs/internal/accept"
)

// Serve accepts connections until Shutdown or Close, which close l, and returns [ErrClosed] then, or
// the listener's error if that fails. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	a := accept.New(l, func(err error) {
		s.own.add(shortages, 1)
		s.cfg.Logger.Error("gateway: clients have to wait: no connection can be accepted", "address", l.Addr().String(), "error", err)
	})
	s.heard[l] = a
	s.mu.Unlock()
	for {
		nc, err := a.Next(s.ctx.Done())
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			delete(s.heard, l)
			s.mu.Unlock()
			if closed {
				return ErrClosed
			}
			return fmt.Errorf("gateway: accept: %w", err)
		}
		s.admit(nc)
	}
}

func (s *Server) admit(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // it had connected, and was not taken in yet
		_ = nc.Close()
		return
	}
	s.own.add(accepted, 1)
	if len(s.open) >= s.cfg.MaxConn {
		s.own.add(rejected, 1)
		go func() {
			_ = nc.SetDeadline(time.Now().Add(time.Second))
			if s.access.Load().tls == nil {
				_, _ = nc.Write([]byte("ERROR Too many open connections\r\n"))
			}
			_ = nc.Close()
		}()
		return
	}
	s.last++
	in := &inbound{Conn: nc, s: s, id: s.last}
	in.took(0)
	s.open[nc] = in
	s.serving.Go(func() {
		rw, by := net.Conn(in), s.access.Load()
		if by.tls != nil {
			rw = tls.Server(rw, by.tls)
		}
		c := newConn(s, rw, by.users)
		c.n = &in.tally
		c.serve()
		_ = rw.Close()
		if in.silent && c.trusted {
			in.tally.add(idleKicks, 1)
		}
		s.mu.Lock()
		delete(s.open, nc)
		s.ended.add(&in.tally)
		s.mu.Unlock()
	})
}

// Shutdown accepts no more connections, carries out the commands that have arrived whole,
// and closes. If ctx ends first, it closes then, and returns that error. On Linux the
// commands include those that the kernel holds for a connection when it is that
// connection's turn; elsewhere only those that were read.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.draining.Store(true)
	for l := range s.heard {
		_ = l.Close()
	}
	for nc := range s.open { // ends waiting for a command
		_ = nc.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, s.Close())
}

// Close ends listeners and connections, and waits for them. It does not close the store.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.stop()
	for l := range s.heard {
		_ = l.Close()
	}
	for nc := range s.open {
		_ = nc.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
	return nil
}
