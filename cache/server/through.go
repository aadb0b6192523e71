package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cache/internal/fence"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// through is that target. Clients that READ through it cannot be cut off one by one, since it responds
// to any client that knows it: it is replaced, and the others are told. The server's mu guards it.
type through struct {
	target   *dc.Target // nil: there is none just now
	said     wire.Target
	fence    fence.Fence
	replaced uint64
	absent   uint64 // clients that were late when they were gone: they were not cut off
}

// toldWithin is how long clients have to go over to another target before the old one is closed, as a
// share of the lease. A slower client finds that a READ fails, and asks.
const toldWithin = 16

func (s *Server) openThrough() (err error) {
	h := &s.through
	if s.cfg.DC.Responders <= 0 {
		return nil
	}
	h.fence.Every = s.cfg.Lease / 4
	h.target, h.said, err = s.newTarget(1)
	return err
}

// findGID returns the GID of the target: see Device in [Config].
func (s *Server) findGID() (verbs.GIDEntry, error) { return s.dev.GIDFor(s.addr) }

// listensAt returns the address that the server listens at.
func (s *Server) listensAt() netip.Addr { return s.addr.(*net.TCPAddr).AddrPort().Addr().Unmap() }

// noTarget returns what clients are told while there is no target: a client that connects meanwhile
// has to know the regions when there is one.
func (s *Server) noTarget(number uint64) (none wire.Target, err error) {
	none = wire.Target{Epoch: s.epoch, Number: number}
	for _, r := range s.offer {
		if none.Regions, err = r.AppendBinary(none.Regions); err != nil {
			break
		}
	}
	return none, err
}

// newTarget makes a target for the records, with a key of its own.
func (s *Server) newTarget(number uint64) (*dc.Target, wire.Target, error) {
	none, err := s.noTarget(number)
	if err != nil {
		return nil, none, err
	}
	gid, err := s.findGID()
	if err != nil {
		return nil, none, err
	}
	var secret [8]byte
	_, _ = rand.Read(secret[:]) // never fails
	key := binary.LittleEndian.Uint64(secret[:])
	t, err := dc.NewTarget(dc.TargetConfig{
		PD: s.records, GID: gid, AccessKey: key, Responders: s.cfg.DC.Responders, Receives: 1, Access: verbs.RemoteRead,
		Backend: s.cfg.DC.Backend, Logger: s.cfg.Logger,
	})
	if err != nil {
		return nil, none, fmt.Errorf("cache: target for clients to READ through: %w", err)
	}
	at := t.Address()
	at.Generation = t.Generation() // a later one at the same address is not meant
	said := none
	said.Key = key
	if said.Address, err = at.MarshalBinary(); err != nil {
		return nil, none, errors.Join(err, t.Close())
	}
	return t, said, nil
}

// leave forgets a client that says it READs nothing any more. If that is not true the client harms
// itself: what it takes for a record may be another one then. s.mu must be held.
func (s *Server) leave(id uint64, c *client) {
	c.left = true
	s.store.Detach(id)
	s.settle()
}

// depart ends a client that READs through the target. Unless it has said goodbye, what it could READ
// stays as it is until it certainly READs no more.
func (s *Server) depart(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[id]
	if delete(s.clients, id); c == nil || !c.left {
		s.through.fence.Gone(id)
	}
	if c != nil && !c.left {
		s.punish(c)
	}
}

// cutLate cuts off a client that hangs, or has the target replaced for one that is gone. s.mu must be
// held.
func (s *Server) cutLate(id uint64) {
	c := s.clients[id]
	if c != nil {
		c.cut(errLate)
	} else {
		s.through.absent++
	}
	if c == nil || c.through {
		s.through.fence.Late(id)
	} else {
		s.punish(c)
	}
}

// fenceNow begins to replace the target if that is due. s.mu must be held.
func (s *Server) fenceNow() {
	if !s.closed && s.through.fence.Begin(time.Since(s.begun)) {
		s.running.Go(s.replaceTarget)
	}
}

// replaceTarget makes another target, has clients go over to it, and closes the old one; after that
// the device responds to no READ of a client that was not told.
func (s *Server) replaceTarget() {
	h := &s.through
	s.mu.Lock()
	number := h.said.Number + 1
	s.mu.Unlock()
	target, said, err := s.newTarget(number)
	if err != nil { // clients ask, until there is one: nothing is kept in quarantine for that
		s.cfg.Logger.Error("cache: no target for clients to READ through", "error", err)
	}
	var old io.Closer
	s.mu.Lock()
	if h.target != nil {
		old = h.target
	}
	h.target, h.said = target, said
	h.replaced++
	if h.fence.Opened(); target == nil {
		h.fence.Want()
	}
	for id, c := range s.clients {
		if c.through && !h.fence.IsGone(id) {
			c.tell = s.sealed(&h.said, c.seal)
			s.wake(c)
		}
	}
	s.mu.Unlock()
	s.retire(old)
}

// retire closes a target, if it is not nil, and forgets the clients that READ only through it when it is closed.
func (s *Server) retire(old io.Closer) {
	if old != nil {
		select {
		case <-time.After(s.cfg.Lease / toldWithin):
		case <-s.stopped.Done():
		}
		if s.destroy(s.stopped, old) != nil {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.through.fence.Closed() {
		s.store.Detach(id)
	}
	s.settle()
}

func (h *through) close() error {
	if h.target == nil {
		return nil
	}
	return h.target.Close()
}

// DCStats are counters of clients that READ through the target.
type DCStats struct {
	Clients  int    // that are connected; Clients of [Stats] includes them
	Gone     int    // that are no longer connected, but may READ through the present target
	Replaced uint64 // times that the target was replaced because one of those was late
	Attached int    // contexts of their initiators that are attached now; 0 with a hardware target
}

// throughStats returns the counters. s.mu must be held.
func (s *Server) throughStats() (n DCStats) {
	h := &s.through
	for _, c := range s.clients {
		if c.through {
			n.Clients++
		}
	}
	n.Gone, n.Replaced = h.fence.Len(), h.replaced
	if h.target != nil {
		n.Attached = h.target.Stats().Live
	}
	return n
}

// destroy closes what clients READ through, and tries again each lease until that succeeds or ctx ends.
func (s *Server) destroy(ctx context.Context, through io.Closer) error {
	for {
		err := through.Close()
		if err == nil {
			return nil
		}
		s.cfg.Logger.Error("cache: a client may go on to READ: close its queue pair", "error", err)
		select {
		case <-time.After(s.cfg.Lease):
		case <-ctx.Done():
			return err
		}
	}
}

// sealed returns what a client is told of a target, with a seal of its own greeting.
func (s *Server) sealed(t *wire.Target, seal greet.Seal) *wire.Target {
	told := *t
	told.Seal = seal.Of(told.Said())
	return &told
}
