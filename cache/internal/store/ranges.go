package store

import (
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// Range is what is known of the records of a range of sizes, with header and key: longer than 1<<(ID-1)
// bytes, and up to 1<<ID.
type Range struct {
	ID      int
	Records int // now, those included that were flushed and are not removed
	Bytes   int // of memory that they take
	Events
}

// Events counts what happened to the records of a range: calls, not READs, and how records left.
type Events struct {
	Sets, Hits, Touches, Deletes, Incrs, Decrs uint64 // that found or stored a record
	CASHits, CASMismatches                     uint64
	Evicted, EvictedUnfetched, EvictedExpiring uint64 // of the last, records that would have expired
	EvictedIdle                                uint64 // ms since the last access to the last one
	Expired, ExpiredUnfetched                  uint64
	NoMemory                                   uint64
}

// Since returns what happened after e was before. EvictedIdle stays: it is the last one's.
func (e Events) Since(before Events) Events {
	return Events{
		e.Sets - before.Sets, e.Hits - before.Hits, e.Touches - before.Touches, e.Deletes - before.Deletes, e.Incrs - before.Incrs, e.Decrs - before.Decrs,
		e.CASHits - before.CASHits, e.CASMismatches - before.CASMismatches,
		e.Evicted - before.Evicted, e.EvictedUnfetched - before.EvictedUnfetched, e.EvictedExpiring - before.EvictedExpiring,
		e.EvictedIdle,
		e.Expired - before.Expired, e.ExpiredUnfetched - before.ExpiredUnfetched,
		e.NoMemory - before.NoMemory,
	}
}

// Ranges returns the ranges that have, or had, any records.
func (s *Store) Ranges() (all []Range) {
	for i := range s.sizes {
		if r := (Range{i, s.sizes[i].Records, s.sizes[i].Bytes, s.events[i]}); r != (Range{ID: i}) {
			all = append(all, r)
		}
	}
	return all
}

// eventsOf returns the counters for a record of n bytes.
func (s *Store) eventsOf(n int) *Events {
	return &s.events[min(rangeOf(n), len(s.events)-1)]
}

// evicted counts an eviction.
func (s *Store) evicted(id uint32) {
	it := &s.items[id]
	e := s.eventsOf(it.place.Length())
	e.Evicted++
	e.EvictedIdle = s.now - it.accessed
	if !it.fetched {
		e.EvictedUnfetched++
	}
	if it.expiry != 0 {
		e.EvictedExpiring++
	}
}

// expired counts a record that has expired.
func (s *Store) expired(id uint32) {
	it := &s.items[id]
	e := s.eventsOf(it.place.Length())
	s.stats.Expired++
	e.Expired++
	if !it.fetched {
		e.ExpiredUnfetched++
	}
}

// count counts a call.
func (c *call) count(status wire.Status) {
	if c.found {
		c.countFound(c.s.eventsOf(wire.RecordSize(len(c.q.Key), len(c.old.Value))), status)
	}
	switch {
	case status != wire.OK:
	case c.a.Bits&wire.ReplyCreated != 0:
		c.s.stats.Stored++
	case c.q.Op.Stores():
		e := c.s.eventsOf(c.s.items[c.id].place.Length())
		c.s.stats.Stored++
		e.Sets++
		if c.wants(wire.WantCompare) {
			e.CASHits++
		}
	}
}

// countFound counts a call that found a record.
func (c *call) countFound(e *Events, status wire.Status) {
	switch op := c.q.Op; {
	case status == wire.Exists && op.Stores():
		e.CASMismatches++
	case status != wire.OK:
	case op == wire.OpGet && c.wants(wire.WantTouch):
		e.Touches++
	case op == wire.OpGet:
		e.Hits++
	case op == wire.OpDelete && !c.wants(wire.WantStale):
		e.Deletes++
	case op == wire.OpArith && c.wants(wire.WantDecr):
		e.Decrs++
	case op == wire.OpArith:
		e.Incrs++
	}
}

// Listed is a record in a list.
type Listed struct {
	Key   string
	Value int   // its length in bytes
	Left  int64 // ms until it expires; -1: never
}

// keysStep is how many items a call of Keys looks at.
const keysStep = 4096

// Keys appends records of a range to list, until that has limit, and returns the item to go on with;
// it is 0 at the end. Items that change between two calls may be listed twice or not at all.
func (s *Store) Keys(now uint64, id, from, limit int, list []Listed) ([]Listed, int) {
	s.advance(now)
	for i := from; i < len(s.items); i++ {
		if len(list) >= limit {
			return list, 0
		}
		if i == from+keysStep {
			return list, i
		}
		it := &s.items[i]
		if it.version == 0 || s.isFlushed(it.version) || rangeOf(it.place.Length()) != id {
			continue
		}
		r := wire.PeekRecord(s.arena.Bytes(it.place))
		if r.Expired(s.now) {
			continue
		}
		left := int64(-1)
		if r.Expiry != 0 {
			left = int64(r.Expiry - s.now)
		}
		list = append(list, Listed{string(r.Key), len(r.Value), left})
	}
	return list, 0
}
