package own

import "github.com/goverbs/goverbs/cache/internal/place"

// A move is requested by the next owner of a shard. It copies the records, and then asks the owner to close the
// shard (Close). From then on the owner executes no change of it, and the next owner copies the last ones. When that has
// all records (Imported) it confirms that. The owner removes the records, so that clients do not find them by READs, and
// sends the transaction that makes the other one the owner (Release), until a placement shows that it is.

// Close begins to hand a shard over to another member, if the server owns it in the epoch. The version names this
// closing; another call for the same member returns it again.
func (s *Server) Close(i int, epoch uint32, to place.Life) (version uint32, ok bool) {
	h := &s.shards[i]
	if h.state == open && h.epoch == epoch && s.placement.Number(to) != 0 {
		s.version++
		h.state, h.to, h.version, h.sent = closed, to, s.version, 0
	}
	return h.version, h.state == closed && h.epoch == epoch && h.to == to
}

// Closed reports whether a shard is still closed that was closed with a version.
func (s *Server) Closed(i int, version uint32) bool {
	h := &s.shards[i]
	return h.state == closed && h.version == version
}

// Closing names the closing of a shard that its owner had in an epoch.
type Closing struct {
	Shard          int
	Epoch, Version uint32
}

// Release returns the placement in which the next owner of closed shards owns them, after that has confirmed that
// it has all records of the closings, which are for the same member. The caller sends the transaction that compares
// the known placement and writes this one. While there is no reply, or another change of the placement came first, the
// caller releases the shards again.
func (s *Server) Release(all ...Closing) (next *place.Placement, ok bool) {
	var to place.Life
	shards := make([]int, len(all))
	for i, c := range all {
		h := &s.shards[c.Shard]
		if h.state != closed || h.epoch != c.Epoch || h.version != c.Version || i > 0 && h.to != to {
			return nil, false
		}
		to, shards[i] = h.to, c.Shard
	}
	for _, i := range shards {
		s.shards[i].sent = s.placement.Epoch
	}
	next, err := s.placement.Move(to, shards...)
	return next, err == nil
}

// Cancel takes a shard into service again that was closed with a version, and reports whether it did. It does
// not while a transaction that releases the shard may be executed. When the next owner is no member any more,
// the shard is taken into service without it.
func (s *Server) Cancel(i int, version uint32) bool {
	h := &s.shards[i]
	if !s.Closed(i, version) || h.sent == s.placement.Epoch {
		return false
	}
	s.reopen(h)
	return true
}

// Imported notes that the server has a complete copy of another server's shard, which the owner of that epoch
// has closed with that version. It reports whether the copy is taken into memory, and confirmed to the owner: a late
// copy of a former closing must not take the place of a newer one.
func (s *Server) Imported(i int, epoch, version uint32) bool {
	h := &s.shards[i]
	c := h.imports
	if h.state != foreign || epoch < c.epoch || epoch == c.epoch && version < c.version {
		return false
	}
	h.imports = copied{epoch, version}
	return true
}
