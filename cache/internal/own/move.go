package own

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// A move is requested by the next owner of a shard. It copies the records, and then asks the owner to close the
// shard (Close). When no client READs the shard any more (Closed), the owner executes no request for it and sends the
// last changes. When the next owner has all records (Imported) it confirms that, and the owner sends the
// transaction that makes it the owner (Release), until a placement shows that it is.

// moves reports whether the shard is being handed over.
func (h *shard) moves() bool { return h.state == closing || h.state == closed }

// Close begins to hand a shard over to another member, if the server owns it in the epoch. It removes the shard from
// the list. The version of the first list without the shard also names this closing; another call for the same member
// returns it again.
func (s *Server) Close(i int, epoch uint32, to place.Life) (version uint32, ok bool) {
	h := &s.shards[i]
	if h.state == open && h.epoch == epoch && s.placement.Number(to) != 0 {
		s.version++
		h.state, h.to, h.version, h.until, h.sent = closing, to, s.version, s.granted, 0
	}
	return h.version, h.moves() && h.epoch == epoch && h.to == to
}

// Closed reports whether no client READs a shard any more that was closed with a version. From then on no request for
// it is executed.
func (s *Server) Closed(i int, version uint32, now time.Duration) bool {
	h := &s.shards[i]
	if h.state == closing && (now >= h.until || s.confirmed(h.version)) {
		h.state = closed
	}
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
	if !h.moves() || h.version != version || h.sent == s.placement.Epoch {
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
