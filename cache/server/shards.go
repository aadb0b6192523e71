package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// ShardState is what a server of a cluster does with a shard.
type ShardState uint8

const (
	ShardForeign  ShardState = iota // it executes no calls, and has no records
	ShardHeld                       // it executes no calls: its records become tombstones, or are imported
	ShardReadOnly                   // it executes calls that change nothing: the next owner copies the records
	ShardOwned                      // it executes all calls
)

// shards is what a server of a cluster serves. The server's mu guards it.
//
// Until the deadline a server has records that are alive of the shards alone that it owns. Those of a shard that
// it hands over become tombstones before another server executes a change, and those that it takes over are not in
// its memory before it owns them. After the deadline other servers may own its shards while its records are still
// there. So a READ counts while the server has granted it, which it does until the deadline at most.
type shards struct {
	states    [place.Shards]ShardState
	deadline  uint64 // of the server's clock: it owns nothing from then on
	life      uint32 // rises when a life in the cluster has ended and its records are gone
	moving    int    // shards that are held or read only
	placement []byte // as clients receive it
	epoch     uint32 // of the placement
	version   uint32 // rises with each placement; 0: there is none
	number    uint8  // of the server
	promise   func([]byte) ([]byte, bool)
}

// JoinCluster makes a server one of a cluster: package cluster calls it before Serve. The server owns no
// shard until SetShard and SetDeadline, and so executes no call of any key. It must have no records. It calls promise
// with what another member asks for, which returns the reply and whether it is a promise.
func (s *Server) JoinCluster(promise func(asked []byte) (reply []byte, ok bool)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("cache: join cluster: %w", ErrClosed)
	case s.store.Stats().Items > 0 || s.cfg.Snapshot != "":
		return errors.New("cache: join cluster: the server has records, or a snapshot, from before")
	}
	s.shards = &shards{promise: promise}
	return nil
}

// SetDeadline sets until when the server owns its shards.
func (s *Server) SetDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards.deadline = s.at(t)
}

// EndLife ends the life of a server in its cluster after others have taken over its shards. When it returns the
// server has no records, and the next life may begin. No client that has come before may READ in that.
func (s *Server) EndLife() {
	s.mu.Lock()
	h := s.shards
	h.deadline, h.moving = 0, 0
	var all place.Set
	for i := range all {
		h.states[i], all[i] = ShardForeign, true
	}
	s.mu.Unlock()
	s.drop(&all)
	s.mu.Lock()
	defer s.mu.Unlock()
	h.life++
}

// SetPlacement sends a message of package place, with the placement of an epoch, to all clients, and to those to come
// before anything else. The server has a number in it; 0: it is no member.
func (s *Server) SetPlacement(message []byte, epoch uint32, number uint8) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	h := s.shards
	if number != 0 && number != h.number {
		h.number = number
		s.store.Join(number)
	}
	h.placement, h.epoch, h.version = message, epoch, h.version+1
	for _, c := range s.clients {
		s.wake(c)
	}
}

// SetShard sets what the server does with a shard.
func (s *Server) SetShard(shard int, state ShardState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.shards
	h.moving += moves(state) - moves(h.states[shard])
	h.states[shard] = state
}

// moves returns 1 for the state of a shard that moves.
func moves(state ShardState) int {
	if state == ShardHeld || state == ShardReadOnly {
		return 1
	}
	return 0
}

// dropSteps is how many items are looked at before others have their turn.
const dropSteps = 1 << 12

// Drop removes the records of shards that are held. When it returns, no client finds any of them by READs that
// begin later.
func (s *Server) Drop(shards ...int) {
	var all place.Set
	for _, i := range shards {
		all[i] = true
	}
	s.drop(&all)
}

func (s *Server) drop(shards *place.Set) {
	for next := 0; ; {
		s.mu.Lock()
		if s.store == nil || s.closed {
			s.mu.Unlock()
			return
		}
		next = s.store.Drop(s.now(), shards, next, dropSteps)
		s.announce()
		s.mu.Unlock()
		if next == 0 {
			return
		}
	}
}

// Record is a record that another server had. Left is in ms; 0: it does not expire.
type Record struct {
	Key, Value []byte
	Flags      uint32
	Attrs      uint16
	Fetched    bool
	CAS        uint64
	Left       uint64
}

// Import adds a record of a shard that is held, passed after its owner has read what
// time it has left. If all free memory is in quarantine Import waits for two leases at most, and then leaves the record
// out, as it does with one that has expired or is too large.
func (s *Server) Import(ctx context.Context, r *Record, passed time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cache: import: %w", err)
	}
	it := snapshot.Item(*r)
	end := time.Now().Add(2 * s.cfg.Lease)
	for {
		s.mu.Lock()
		if s.store == nil || s.closed {
			s.mu.Unlock()
			return fmt.Errorf("cache: import: %w", ErrClosed)
		}
		status := s.store.Restore(s.now(), &it, uint64((passed+time.Millisecond-1)/time.Millisecond))
		wait := status == kv.NoMemory && s.store.Stats().Arena.Quarantine > 0
		if s.announce(); wait {
			s.askAll()
		}
		s.mu.Unlock()
		if !wait || time.Now().After(end) {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("cache: import: %w", ctx.Err())
		}
	}
}

// execute carries out a client's request, unless another server of the cluster has the key. s.mu must be held; it
// is released while another member asks for a promise.
func (s *Server) execute(c *client, q *wire.Request) wire.Reply {
	h, now := s.shards, s.now()
	switch {
	case h == nil && q.Op < wire.OpList:
	case h == nil:
		return s.wrongServer(q.ID)
	case q.Op == wire.OpPromise:
		s.mu.Unlock()
		value, ok := h.promise(q.Value)
		s.mu.Lock()
		a := s.wrongServer(q.ID)
		if a.Value = value; ok {
			a.Status = kv.OK
		}
		return a
	case q.Op == wire.OpGrant && c.life != h.life:
		a := s.wrongServer(q.ID)
		a.Status = wire.WrongEpoch
		return a
	case !h.serves(&q.Request, q.Placement, q.ReadOnly, now):
		return s.wrongServer(q.ID)
	case q.Op == wire.OpGrant:
		return wire.Reply{ID: q.ID, Epoch: s.epoch, Reply: kv.Reply{Status: kv.OK, Number: h.deadline, Clock: now}}
	}
	return s.store.Do(now, q)
}

// executeLocal carries out a request of this process likewise. s.mu must be held.
func (s *Server) executeLocal(q *kv.Request) wire.Reply {
	now := s.now()
	if s.shards != nil && !s.shards.serves(q, 0, false, now) {
		return s.wrongServer(0)
	}
	return s.store.DoLocal(now, q)
}

// wrongServer returns the reply to a request that is not executed. s.mu must be held.
func (s *Server) wrongServer(id uint64) wire.Reply {
	return wire.Reply{ID: id, Epoch: s.epoch, Reply: kv.Reply{Status: wire.WrongServer, Clock: s.now()}}
}

// serves reports whether a request is executed now, which is for a placement and may be known to change nothing. A flush is
// executed if the client has the server's placement, and so sends it to all owners, and if no copy of a shard may be
// under way.
func (h *shards) serves(q *kv.Request, placement uint32, readOnly bool, now uint64) bool {
	if now >= h.deadline {
		return false
	}
	switch q.Op {
	case kv.OpFlush:
		return h.moving == 0 && (placement == 0 || placement == h.epoch)
	case wire.OpGrant:
		return true
	case wire.OpList:
		return h.lists(q.Value)
	}
	switch h.states[place.ShardOf(q.Key)] {
	case ShardOwned:
		return true
	case ShardReadOnly:
		return readOnly
	}
	return false
}

// lists reports whether the records of the shards of a set may be listed.
func (h *shards) lists(set []byte) bool {
	shards, ok := place.ReadSet(set)
	for i, in := range shards {
		ok = ok && (!in || h.states[i] >= ShardReadOnly)
	}
	return ok
}

// beginMap returns the beginning of a snapshot. s.mu must be held.
func (s *Server) beginMap(now uint64) wire.Map {
	m := s.store.Begin(now)
	m.Granted = s.shards != nil
	return m
}

// gatherPlacement appends the placement if a client does not have it. s.mu must be held.
func (s *Server) gatherPlacement(c *client, out []byte) []byte {
	if s.shards != nil && c.placed != s.shards.version {
		c.placed = s.shards.version
		out = wire.AppendPlacement(out, s.epoch, s.shards.placement)
	}
	return out
}
