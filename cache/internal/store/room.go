package store

import "github.com/goverbs/goverbs/cache/internal/wire"

// reserve is the part of the arena that is kept for quarantine and for pages on their way
// from one size class to another.
const reserve = 16

func (s *Store) limit() int {
	total := s.arena.Stats().Total
	return total - total/reserve
}

// evictTo evicts until at most limit bytes are given out.
func (s *Store) evictTo(limit int) {
	for s.arena.Stats().Live > limit {
		if !s.evict() {
			return
		}
	}
}

func (s *Store) evict() bool {
	id, ok := s.queue.Evict()
	if ok && id == s.pinned {
		// It goes back where accessed items go, and another one leaves.
		other, more := s.queue.Evict()
		s.queue.Insert(id, s.items[id].fingerprint, int(s.items[id].size))
		id, ok = other, more
	}
	if !ok {
		return false
	}
	s.stats.Evicted++
	s.remove(id)
	return true
}

// alloc finds a slot. When its size class has none, what helps is to evict, unless what
// was evicted already is in quarantine: then only time does.
func (s *Store) alloc(n int, id uint32) (wire.Place, bool) {
	size := s.arena.SlotSize(n)
	s.evictTo(s.limit() - size)
	for {
		if p, ok := s.arena.Alloc(n, id); ok {
			return p, true
		}
		if s.arena.Stats().Limbo > s.arena.Stats().Total/reserve || !s.drain(n) {
			return 0, false
		}
	}
}

// drain empties a page of another size class, or forgets an item if there is none. It
// tells whether it evicted anything.
func (s *Store) drain(n int) bool {
	s.owners = s.arena.Drain(n, s.owners[:0])
	some := false
	for _, o := range s.owners {
		if o != s.pinned {
			s.stats.Evicted++
			s.remove(o)
			some = true
		}
	}
	return some || s.evict()
}

// makeRoomInTable sees to it that there is a place for the entry of a new item, so that no item is pinned.
func (s *Store) makeRoomInTable(fingerprint uint64) bool {
	s.found = s.table.Crowd(fingerprint, s.found[:0])
	if s.hasRoom(fingerprint) {
		return true
	}
	if s.table.Load() >= crowdedAt {
		s.table.Grow()
	}
	// The bucket may be among the next to be split, or far away: one entry goes.
	s.found = s.table.Crowd(fingerprint, s.found[:0])
	oldest := noItem
	for _, e := range s.found {
		if oldest == noItem || s.items[e.Item].accessed < s.items[oldest].accessed {
			oldest = e.Item
		}
	}
	if oldest == noItem {
		return false
	}
	s.stats.Evicted++
	s.stats.Crowded++
	s.remove(oldest)
	return true
}

func (s *Store) hasRoom(fingerprint uint64) bool {
	return len(s.found) < s.table.Room(fingerprint)
}

// growAt is the load, in percent, at which the table begins to double, and splitStep how
// many buckets each change moves then: enough to be done before the new table is full. From
// growSoon on the memory for that is wanted.
const (
	growSoon  = 55
	growAt    = 65
	splitStep = 4
)

// crowdedAt is the load at which two full buckets are reason enough to double the table. In an
// emptier one they are no chance, but keys that a client has made up for that: it knows the secret
// of the fingerprints. They evict each other, and take no memory.
const crowdedAt = 50

func (s *Store) grow() {
	switch load := s.table.Load(); {
	case load >= growAt:
		s.table.Grow()
	case load >= growSoon && s.cfg.SoonTable != nil:
		if next := s.table.Next(); next > 0 {
			s.cfg.SoonTable(next)
		}
	}
	if old := s.table.Step(splitStep); old != nil {
		where, depth := s.table.Where()
		s.log.add(wire.TableMoved(s.cfg.Epoch, where, depth))
		s.retired = append(s.retired, retired{s.log.last, old})
	}
}

// settle ends the quarantine of what no client can READ any more.
func (s *Store) settle() {
	s.leave()
	for len(s.retired) > 0 && s.retired[0].seq <= s.released {
		s.cfg.FreeTable(s.retired[0].mem)
		s.retired = s.retired[1:]
	}
}
