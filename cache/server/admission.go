package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/internal/accept"
	"github.com/goverbs/goverbs/internal/loglimit"
	"github.com/goverbs/goverbs/internal/pending"
)

// admission listens at the address of one server or of several, one for each tenant. It finds out to which
// tenant each client belongs, and admits it.
type admission struct {
	listener   *net.TCPListener
	log        *slog.Logger
	unknownKey []byte         // the key of unknown tenants, which no client has
	refusing   sync.WaitGroup // connections that come too early

	pending *pending.Conns // connections that have not proved a key
	turns   *turns         // to connect by RDMA
	refused refusals

	mu      sync.Mutex
	tenants map[string]tenant
}

type tenant struct {
	key    []byte // none: any client is admitted
	server *Server
}

func newAdmission(ctx context.Context, address string, log *slog.Logger) (*admission, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cache: listen: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	d := &admission{listener: l.(*net.TCPListener), log: loglimit.New(log, logPause), unknownKey: make([]byte, greet.MinKey), tenants: map[string]tenant{}, pending: pending.New(), turns: newTurns(atOnce())}
	_, _ = rand.Read(d.unknownKey) // never fails
	d.refusing.Go(d.refuse)
	return d, nil
}

// refuse resets connections until admission is opened: the address is taken, and no server serves there
// yet. A client that was let wait would take that for a server that does not respond.
func (d *admission) refuse() {
	for {
		conn, err := d.listener.AcceptTCP()
		if err != nil {
			return
		}
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
}

// open is called once, when there is a server: connections from now on wait for serve.
func (d *admission) open() {
	_ = d.listener.SetDeadline(time.Unix(1, 0))
	d.refusing.Wait()
	_ = d.listener.SetDeadline(time.Time{})
}

// serve admits clients until ctx ends, which is no error, or the admission is closed.
func (d *admission) serve(ctx context.Context) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = d.listener.Close() })()
	conns := accept.New(d.listener, func(err error) {
		d.log.Error("cache: clients have to wait: no connection can be accepted", "address", d.listener.Addr().String(), "error", err)
	})
	for {
		conn, err := conns.Next(ctx.Done())
		switch {
		case err == nil:
			clients.Go(func() { d.greet(ctx, conn) })
		case ctx.Err() != nil:
			return nil
		default:
			return err
		}
	}
}

func (d *admission) greet(ctx context.Context, conn net.Conn) {
	var whose *Server // to which the key belongs
	c := &admitted{Conn: conn}
	leave := d.pending.Admit(conn.RemoteAddr(), func() { _ = conn.Close() })
	h, seal, err := link.Greeted(ctx, conn, func(name string) (key []byte) {
		key, whose = d.keyOf(name)
		return key
	}, func(h *greet.Hello, w *link.Waiter) error {
		if err := leave(); err != nil {
			return err
		}
		return d.let(ctx, c, whose, h, w)
	})
	if crowded := leave(); crowded != nil {
		err = crowded
	}
	c.by, c.seal = h.Transport, seal
	d.mu.Lock()
	to := d.tenants[h.Tenant].server // another one, or nil, if the tenant was revoked meanwhile
	d.mu.Unlock()
	if err == nil && (to == nil || to != whose || !to.admit(c)) {
		err = ErrClosed
	}
	if err != nil {
		_ = c.Close()
		if ctx.Err() == nil {
			d.refused.add(err)
			d.log.Info("cache: client was not let in", "address", conn.RemoteAddr().String(), "tenant", h.Tenant, "error", err)
		}
	}
}

// let gives a client that means this server a place, and a turn to connect if it needs one.
func (d *admission) let(ctx context.Context, c *admitted, s *Server, h *greet.Hello, w waiter) error {
	err := h.Check(s.cfg.Names, link.AddrPort(c.LocalAddr()))
	if err == nil {
		err = s.reserve(c, h.Client)
	}
	if err == nil && h.Transport != greet.TCP {
		ready, free := s.mayREAD(c.RemoteAddr())
		defer free()
		err = await(ctx, ready, w)
	}
	if err == nil && h.Transport == greet.RDMA {
		c.connects, err = d.turns.take(ctx, h.Tenant, w)
	}
	return err
}

func (d *admission) keyOf(name string) ([]byte, *Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.tenants[name]; ok {
		return t.key, t.server
	}
	return d.unknownKey, nil
}

// set admits a tenant's clients from now on.
func (d *admission) set(name string, t tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenants[name] = t
}

// remove admits them no longer, and returns their server.
func (d *admission) remove(name string) *Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.tenants[name].server
	delete(d.tenants, name)
	return s
}

func (d *admission) close() error {
	err := d.listener.Close()
	if d.refusing.Wait(); errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

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
