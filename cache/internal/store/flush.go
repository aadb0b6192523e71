package store

import "github.com/goverbs/goverbs/cache/internal/wire"

// A flush removes all records by their versions: one delta tells clients, and tombstones follow, some with each
// [Store.Tick], and before live records are evicted. A request that looks at a record of a flush makes it a tombstone
// first. So a client never READs what a request has found to be gone, and a flush is over when no client can READ what
// it has removed: because all of that are tombstones, or because all clients have left the delta behind.

// flush removes all there is.
func (s *Store) flush() {
	s.flushAt = 0
	s.stats.Flushes++
	s.flushed = flushed{version: s.version, left: s.table.Len()}
	s.log.add(wire.Delta{Change: wire.ChangeFlush, Gone: s.version, Entry: wire.Entry{Epoch: s.cfg.Epoch}})
}

// Flushed reports whether no client can READ any more what a flush before delta seq has removed.
func (s *Store) Flushed(seq uint64) bool { return s.flushed.left == 0 || s.horizon() >= seq }

func (s *Store) isFlushed(version uint64) bool { return version <= s.flushed.version }

// reclaimSteps is how many items are looked at for one that can be reclaimed.
const reclaimSteps = 64

// reclaim makes a tombstone of a record that has expired or was flushed, or looks for one. It reports whether
// there may be more.
func (s *Store) reclaim() bool {
	id, ok, more := s.expiring.Due(s.now, reclaimSteps)
	if ok {
		if !s.isFlushed(s.items[id].version) {
			s.expired(id)
		}
		s.remove(id)
		return true
	}
	f := &s.flushed
	for i := 0; i < reclaimSteps && f.left > 0; i++ {
		id := uint32(f.next)
		f.next++
		if v := s.items[id].version; v != 0 && s.isFlushed(v) {
			s.remove(id)
			return true
		}
	}
	return more || f.left > 0
}
