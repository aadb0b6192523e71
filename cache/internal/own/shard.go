package own

import "github.com/goverbs/goverbs/cache/internal/place"

// state is what a server does with a shard.
type state uint8

const (
	foreign state = iota // another server owns it
	opening              // the server owns it, and prepares its records
	open                 // requests are executed
	closed               // no change is executed: the next owner copies the last ones
)

// shard is one shard at a server.
type shard struct {
	state   state
	epoch   uint32 // in which the server owns it
	keep    bool   // opening: the imported records are those of the shard
	imports copied

	// While it moves to another server:
	to      place.Life
	version uint32 // of the closing
	sent    uint32 // epoch of the placement that the last release compares; 0: none was sent
}

// copied names a complete copy of another server's shard by the epoch in which that owned it, and the version
// with which it closed it. The zero value is none.
type copied struct{ epoch, version uint32 }

// assign takes the owner of a shard from a newer placement, and reports whether the server has lost the shard.
func (s *Server) assign(i int, owner place.Shard) (lost bool) {
	h := &s.shards[i]
	mine := s.number != 0 && owner.Owner == s.number
	switch lost = h.state != foreign; {
	case !mine && !lost:
		return false
	case owner.Epoch == h.epoch:
		if h.state == closed && s.placement.Number(h.to) == 0 {
			s.reopen(h)
		}
		return false
	case !mine:
		*h = shard{imports: h.imports}
	default:
		*h = shard{state: opening, epoch: owner.Epoch, keep: owner.Handed && h.imports != copied{}}
	}
	s.version++
	return lost
}

// Opening reports whether the server has to prepare the records of a shard, and then calls Open. If keep is set
// they are those that it has imported; otherwise the shard has to be empty.
func (s *Server) Opening(i int) (epoch uint32, keep, ok bool) {
	h := &s.shards[i]
	return h.epoch, h.keep, h.state == opening
}

// Open takes a shard into service after its records are prepared.
func (s *Server) Open(i int, epoch uint32) {
	if h := &s.shards[i]; h.state == opening && h.epoch == epoch {
		s.reopen(h)
	}
}

func (s *Server) reopen(h *shard) {
	h.state = open
	s.version++
}
