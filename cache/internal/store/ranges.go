package store

import (
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Ranges returns the ranges that have, or had, any records.
func (s *Store) Ranges() (all []kv.Range) {
	for i := range s.sizes {
		if r := (kv.Range{ID: i, Records: s.sizes[i].Records, Bytes: s.sizes[i].Bytes, Events: s.events[i]}); r != (kv.Range{ID: i}) {
			all = append(all, r)
		}
	}
	return all
}

// eventsOf returns the counters for a record of n bytes.
func (s *Store) eventsOf(n int) *kv.Events {
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

// count counts a request.
func (c *call) count(status kv.Status) {
	if c.found {
		c.countFound(c.s.eventsOf(wire.RecordSize(len(c.q.Key), len(c.old.Value))), status)
	}
	switch {
	case status != kv.OK:
	case c.a.Bits&kv.ReplyCreated != 0:
		c.s.stats.Stored++
	case c.q.Op.Stores():
		e := c.s.eventsOf(c.s.items[c.id].place.Length())
		c.s.stats.Stored++
		e.Sets++
		if c.wants(kv.WantCompare) {
			e.CASHits++
		}
	}
}

// countFound counts a request that found a record.
func (c *call) countFound(e *kv.Events, status kv.Status) {
	switch op := c.q.Op; {
	case status == kv.Exists && op.Stores():
		e.CASMismatches++
	case status != kv.OK:
	case op == kv.OpGet && c.wants(kv.WantTouch):
		e.Touches++
	case op == kv.OpGet:
		e.Hits++
	case op == kv.OpDelete && !c.wants(kv.WantStale):
		e.Deletes++
	case op == kv.OpArith && c.wants(kv.WantDecr):
		e.Decrs++
	case op == kv.OpArith:
		e.Incrs++
	}
}

// keysStep is how many items a call of Keys looks at.
const keysStep = 4096

// Keys appends records of a range to list, until that has limit, and returns the item to go on with;
// it is 0 at the end. Items that change between two calls may be listed twice or not at all.
func (s *Store) Keys(now uint64, id, from, limit int, list []kv.Listed) ([]kv.Listed, int) {
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
		list = append(list, kv.Listed{Key: string(r.Key), Value: len(r.Value), Left: left})
	}
	return list, 0
}
