package store

import "github.com/goverbs/goverbs/cache/internal/wire"

// log holds the last deltas.
type log struct {
	ring []wire.Delta
	last uint64 // the number of the last one; they begin with 1
}

func (l *log) add(d wire.Delta) {
	l.last++
	l.ring[l.last%uint64(len(l.ring))] = d
}

// clients are those that may READ.
type clients struct {
	lease uint64
	all   map[uint64]*client
	low   uint64 // the least that one of them has said
	lows  int    // how many are there yet, at least; 0: low is not known any more
}

// client is how far a client is. To be cut off no later than a lease after a slot was
// freed it has half a lease to pass each mark: a slot that is freed just behind a mark
// is before the next one.
type client struct {
	quiet  uint64 // see [wire.Horizon]
	mark   uint64 // a delta that it has to pass
	marked uint64 // when the mark was set
	late   bool   // it was named by Late
}

// Attach admits a client, which may READ from now on.
func (s *Store) Attach(id, now uint64) {
	s.advance(now)
	if s.clients.all == nil {
		s.clients.all = make(map[uint64]*client)
	}
	s.clients.all[id] = &client{quiet: s.log.last, mark: s.log.last, marked: s.now}
}

// Detach forgets a client. The device must no longer respond to its READs.
func (s *Store) Detach(id uint64) {
	if c := s.clients.all[id]; c != nil {
		s.clients.leaves(c.quiet)
		delete(s.clients.all, id)
	}
	s.settle()
}

// Heard takes what a client says of itself. What is of another epoch, goes back, or is ahead of the
// server is refused.
func (s *Store) Heard(id uint64, h wire.Horizon) error {
	c := s.clients.all[id]
	switch {
	case c == nil || h.Quiet > s.log.last || h.Quiet < c.quiet:
		return wire.Malformed
	case h.Epoch != s.cfg.Epoch:
		return wire.OtherEpoch
	}
	if h.Quiet > c.quiet {
		s.clients.leaves(c.quiet)
		c.quiet = h.Quiet
	}
	if c.quiet >= c.mark {
		c.mark, c.marked = s.log.last, s.now
	}
	s.settle()
	return nil
}

// Behind reports whether a client has not said yet that it has left all changes behind.
func (s *Store) Behind(id uint64) bool {
	c := s.clients.all[id]
	return c != nil && c.quiet < s.log.last
}

// Late appends the clients that have to be cut off, each once. They are to be detached once the device
// no longer responds to their READs.
func (s *Store) Late(now uint64, ids []uint64) []uint64 {
	s.advance(now)
	for id, c := range s.clients.all {
		switch {
		case c.late:
		case c.quiet >= c.mark:
			c.mark, c.marked = s.log.last, s.now
		case s.now-c.marked >= s.clients.lease/2:
			c.late = true
			s.stats.Cut++
			ids = append(ids, id)
		}
	}
	return ids
}

// Pardon gives all clients their time anew: the server was not there to hear them. That
// keeps slots in quarantine for longer, and frees none early.
func (s *Store) Pardon(now uint64) {
	s.advance(now)
	for _, c := range s.clients.all {
		c.marked = s.now
	}
}

// Seq returns the number of the last delta.
func (s *Store) Seq() uint64 { return s.log.last }

// TableMoved returns the number of the last delta that says that the table is elsewhere; 0 if there is none.
func (s *Store) TableMoved() uint64 { return s.movedAt }

// horizon returns the last delta that all clients have left behind. Each change asks for it, so
// clients are gone through only when the last of those that are furthest behind has moved on.
func (s *Store) horizon() uint64 {
	c := &s.clients
	if len(c.all) == 0 {
		return s.log.last
	}
	if c.lows == 0 {
		c.low = s.log.last
		for _, one := range c.all {
			switch {
			case one.quiet < c.low:
				c.low, c.lows = one.quiet, 1
			case one.quiet == c.low:
				c.lows++
			}
		}
	}
	return c.low
}

// leaves notes that a client is no longer where it was.
func (c *clients) leaves(quiet uint64) {
	if c.lows > 0 && quiet == c.low {
		c.lows--
	}
}

// Begin returns the beginning of a full sync.
func (s *Store) Begin(now uint64) wire.Map {
	s.advance(now)
	where, depth := s.table.Where()
	return wire.Map{Epoch: s.cfg.Epoch, Seq: s.log.last, Clock: s.now, Secret: s.cfg.Secret, Table: where, Depth: uint16(depth), Longest: uint32(min(s.cfg.MaxValue, s.arena.Longest())), Flushed: s.flushed.version}
}

// Chunk puts into c the part of a full sync at a position, with up to n entries of up to n buckets, so
// that a nearly empty table holds up no other work. It returns the position of the next part, and 0 at
// the end. A full sync begins at 0. All deltas up to c.Seq have to go before it.
func (s *Store) Chunk(now, pos uint64, n int, c *wire.Chunk) uint64 {
	s.advance(now)
	*c = wire.Chunk{Epoch: s.cfg.Epoch, Seq: s.log.last, Clock: s.now, Entries: c.Entries[:0]}
	n = min(n, wire.MaxEntries)
	for walked := 0; walked < n && len(c.Entries)+2*wire.BucketEntries <= max(n, 2*wire.BucketEntries); walked++ {
		if c.Entries, pos = s.table.Walk(pos, c.Entries); pos == 0 {
			c.Last = true
			break
		}
	}
	return pos
}

// Deltas puts up to n changes from number first on into d. It reports whether they are still there: a
// client that is too far behind needs a full sync.
func (s *Store) Deltas(now, first uint64, n int, d *wire.Deltas) bool {
	s.advance(now)
	*d = wire.Deltas{Epoch: s.cfg.Epoch, First: first, Clock: s.now, List: d.List[:0]}
	if first == 0 || first > s.log.last+1 || first+uint64(len(s.log.ring)) <= s.log.last {
		return false
	}
	for ; first <= s.log.last && len(d.List) < min(n, wire.MaxEntries); first++ {
		d.List = append(d.List, s.log.ring[first%uint64(len(s.log.ring))])
	}
	return true
}
