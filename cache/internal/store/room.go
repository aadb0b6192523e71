package store

import (
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/histogram"
)

// reserve is the part of the arena that is kept for quarantine, and to move records.
const reserve = 32

func (s *Store) limit() int {
	total := s.arena.Stats().Total
	return total - total/reserve
}

// idleSteps is how often one call looks for what has expired in vain, before live records have to go.
const idleSteps = 64

// evictTo makes room until at most limit bytes are given out: what has expired or was flushed goes first.
func (s *Store) evictTo(limit int) {
	for idle := 0; s.arena.Stats().Live > limit; {
		before := s.arena.Stats().Live
		if idle < idleSteps && s.reclaim() {
			if s.arena.Stats().Live == before {
				idle++
			}
			continue
		}
		id, ok := s.queue.Evict()
		if !ok {
			return
		}
		s.evict(id)
	}
}

// evict removes a live record.
func (s *Store) evict(id uint32) {
	s.evicted(id)
	s.stats.Evicted++
	s.stats.EvictedIdle = s.now - s.items[id].accessed
	s.ages.Add(s.stats.EvictedIdle)
	s.remove(id)
}

// EvictedAges returns for how long records had not been accessed when they were evicted, in ms.
func (s *Store) EvictedAges() histogram.Counts { return s.ages }

// alloc returns a place for a record of n bytes. While there is none although enough is free, records are moved.
// It fails if what was evicted and moved is in quarantine: then only time helps.
func (s *Store) alloc(n int) (wire.Place, bool) {
	s.evictTo(s.limit() - s.arena.SlotSize(n))
	if p, ok := s.arena.Alloc(n); ok {
		return p, true
	}
	s.compact(n)
	return s.arena.Alloc(n)
}

// prepare makes room for a record as long as those of late, after an item was set and before the next one comes, which
// would otherwise have to wait until clients are done with what was moved for it. The item stays where it is.
func (s *Store) prepare(id uint32) {
	if len(s.clients.all) > 0 && !s.arena.Has(s.longest) {
		s.pinned = id
		s.compact(s.longest)
		s.pinned = noItem
	}
}

// compact moves records, to make a free extent of n bytes when quarantine is over.
func (s *Store) compact(n int) {
	var avoid wire.Place
	if s.pinned != noItem {
		avoid = s.items[s.pinned].place
	}
	s.crowd, _ = s.arena.Reserve(n, avoid, s.crowd[:0])
	entries := make([]wire.Entry, len(s.crowd))
	for i, b := range s.crowd {
		r := wire.PeekRecord(b) // before anything moves: what leaves quarantine is overwritten
		entries[i] = wire.Entry{Fingerprint: r.Fingerprint, Version: r.Version}
	}
	for _, e := range entries {
		s.found = s.table.Candidates(e.Fingerprint, s.found[:0])
		for _, f := range s.found {
			if f.Version == e.Version && f.Item != s.pinned {
				s.move(f.Item)
				break
			}
		}
	}
}

// move writes a record to another place, as if it were changed, or evicts it if there is none.
func (s *Store) move(id uint32) {
	if s.isFlushed(s.items[id].version) {
		s.remove(id)
		return
	}
	r := wire.PeekRecord(s.arena.Bytes(s.items[id].place))
	place, ok := s.arena.Alloc(wire.RecordSize(len(r.Key), len(r.Value)))
	if !ok {
		s.evict(id)
		return
	}
	s.stats.Moved++
	s.put(id, &r, place)
}

// makeRoomInTable makes a place for the entry of a new item, by an eviction if needed, and reports
// whether there is one. No item is pinned then.
func (s *Store) makeRoomInTable(fingerprint uint64) bool {
	s.found = s.table.Crowd(fingerprint, s.found[:0])
	if s.hasRoom(fingerprint) {
		return true
	}
	if s.table.Load() >= crowdedAt {
		s.table.Grow()
	}
	for range crowdedSteps {
		if !s.table.Growing() {
			break
		}
		s.grow()
		if s.found = s.table.Crowd(fingerprint, s.found[:0]); s.hasRoom(fingerprint) {
			return true
		}
	}
	// The bucket is far from those that are split next: one entry goes.
	oldest := noItem
	for _, e := range s.found {
		if oldest == noItem || s.items[e.Item].accessed < s.items[oldest].accessed {
			oldest = e.Item
		}
	}
	if oldest == noItem {
		return false
	}
	s.stats.Crowded++
	s.evict(oldest)
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

// crowdedSteps is how often buckets are split for one record, which takes a millisecond: all of a table of 28,000 entries.
const crowdedSteps = 1024

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
		s.movedAt = s.log.last
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
