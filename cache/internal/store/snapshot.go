package store

import (
	"cmp"
	"slices"

	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Head returns what a snapshot of this moment begins with; saved is the time in ms since 1970.
func (s *Store) Head(now uint64, saved int64) snapshot.Head {
	s.advance(now)
	h := snapshot.Head{Epoch: s.cfg.Epoch, Saved: saved, CAS: s.cas}
	if s.flushAt != 0 {
		h.FlushIn = s.flushAt - s.now
	}
	return h
}

// Save passes all records that have not expired to put, those first that were accessed longest ago:
// where there is less room they are the first to leave. An item is a view that is good until put
// returns.
func (s *Store) Save(now uint64, put func(*snapshot.Item) error) error {
	s.advance(now)
	ids := make([]uint32, 0, s.table.Len())
	for id := range s.items {
		if it := &s.items[id]; !s.isFlushed(it.version) && (it.expiry == 0 || it.expiry > s.now) {
			ids = append(ids, uint32(id))
		}
	}
	slices.SortStableFunc(ids, func(a, b uint32) int { return cmp.Compare(s.items[a].accessed, s.items[b].accessed) })
	for _, id := range ids {
		r := wire.PeekRecord(s.arena.Bytes(s.items[id].place))
		it := snapshot.Item{Key: r.Key, Value: r.Value, Flags: r.Flags, Attrs: r.Attrs, CAS: r.CAS, Fetched: s.items[id].fetched}
		if r.Expiry != 0 {
			it.Left = r.Expiry - s.now
		}
		if err := put(&it); err != nil {
			return err
		}
	}
	return nil
}

// Resume continues where a snapshot ended, passed ms ago: CAS numbers that were given out are not
// given out again, and a flush that was to come still comes. If it would have come meanwhile Resume
// returns false: then no record is to be restored. It is for a store that has executed nothing.
func (s *Store) Resume(now uint64, h *snapshot.Head, passed uint64) bool {
	s.advance(now)
	s.cas = max(s.cas, h.CAS)
	switch {
	case h.FlushIn == 0:
		return true
	case h.FlushIn <= passed:
		return false
	}
	s.flushAt = s.now + h.FlushIn - passed
	return true
}

// Restore takes a record of a snapshot, or of another server. Its status is OK if the record is there now, NotFound if
// it has expired meanwhile, and another one if there is no room.
func (s *Store) Restore(now uint64, it *snapshot.Item, passed uint64) kv.Status {
	s.advance(now)
	if it.Left != 0 && it.Left <= passed {
		return kv.NotFound
	}
	f := s.cfg.Secret.Fingerprint(it.Key)
	id, _, _ := s.lookup(f, it.Key)
	r := wire.Record{Key: it.Key, Value: it.Value, Fingerprint: f, Flags: it.Flags, Attrs: it.Attrs, CAS: it.CAS}
	if it.Left != 0 {
		r.Expiry = s.now + it.Left - passed
	}
	id, status := s.write(id, &r)
	if status == kv.OK {
		s.items[id].fetched = it.Fetched
	}
	return status
}
