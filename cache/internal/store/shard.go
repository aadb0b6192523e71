package store

import (
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Join makes the store one of a cluster's, before it has records. No store with another number gives out the
// same CAS numbers.
func (s *Store) Join(number uint8) {
	s.sharded, s.casStep = true, 1<<8
	s.cas = s.cas&^(s.casStep-1) + s.casStep | uint64(number)
}

func shardOf(key []byte) uint16 { return uint16(place.ShardOf(key)) }

const (
	listSteps = 1 << 14 // items that one list looks at
	listBytes = 32 << 10
)

// list lists records of shards: see [wire.Listed]. The cursor is an item. If the value is no set there are none.
// A flush that is to come may come here only, or elsewhere before a record does: the record has no time after it.
func (s *Store) list(q *kv.Request, a *wire.Reply) kv.Status {
	shards, _ := place.ReadSet(q.Value)
	out, id := s.scratch[:0], q.Initial
	for n := uint64(len(s.items)); id < n && id-q.Initial < listSteps && len(out) < listBytes; id++ {
		it := &s.items[id]
		if it.version == 0 || !shards[it.shard] || s.isFlushed(it.version) || it.expiry != 0 && it.expiry <= s.now {
			continue
		}
		r := wire.PeekRecord(s.arena.Bytes(it.place))
		l := wire.Listed{Key: r.Key, CAS: r.CAS, Attrs: r.Attrs, Fetched: it.fetched}
		if it.expiry != 0 {
			l.Left = it.expiry - s.now
		}
		if s.flushAt != 0 && (l.Left == 0 || l.Left > s.flushAt-s.now) {
			l.Left = s.flushAt - s.now
		}
		out = wire.AppendListed(out, &l)
	}
	if id < uint64(len(s.items)) {
		a.Number = id
	}
	s.scratch, a.Value = out, out
	return kv.OK
}

// Drop makes tombstones of the records of some shards, among n items from one on. It returns the next item to go on
// with, or 0 when it has seen all. The shards have no changes meanwhile.
func (s *Store) Drop(now uint64, shards *place.Set, from, n int) (next int) {
	s.advance(now)
	for next = from; next < len(s.items) && next-from < n; next++ {
		if it := &s.items[next]; it.version != 0 && shards[it.shard] {
			s.remove(uint32(next))
		}
	}
	if next < len(s.items) {
		return next
	}
	return 0
}
