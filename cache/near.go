package cache

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// near holds copies of records that were READ, of one session. A copy is good as long as the
// map has the record's entry, which it loses by the server's deltas, and the server was
// heard lately: [mirror.Mirror.Holds]. So no copy has to be removed in time, and removing
// one only makes room.
//
// Copies are kept, and dropped, with the session's mu held. A READ that finds that a record is gone, or finds one
// that the map does not know of, drops the copy of that fingerprint. A READ that began before makes no copy, even
// if the map has its entry again by then, from an older reply or READ. So one client's reads never go back in time.
type near struct {
	copies *otter.Cache[uint64, *kept] // by fingerprint
	most   int                         // bytes of a record
	bound  uint64                      // ms
	from   atomic.Int64                // no copy is used before that time of the session's clock
	asked  int64                       // when the server was last asked for its clock
	marks  [marks]uint32               // how often a copy was dropped, by fingerprint
}

// marks is the number of groups of fingerprints for which drops are counted.
const marks = 64

// kept is a copy. It does not change.
type kept struct {
	entry  wire.Entry
	expiry uint64
	key    []byte
	it     Item
}

// keptBytes is about what a copy takes beside key and value.
const keptBytes = 256

// newNear makes a near cache if cfg asks for one.
func newNear(cfg *Config) (*near, error) {
	if cfg.NearBytes == 0 {
		return nil, nil
	}
	copies, err := otter.New(&otter.Options[uint64, *kept]{
		MaximumWeight: uint64(cfg.NearBytes),
		Weigher:       func(_ uint64, k *kept) uint32 { return uint32(keptBytes + len(k.key) + len(k.it.Value)) },
	})
	return &near{copies: copies, most: cfg.NearBytes / 8, bound: uint64(cfg.NearStale / time.Millisecond)}, err
}

// nearClock returns the local time in ms, or 0 without a near cache.
func (s *session) nearClock() int64 {
	if s.near == nil {
		return 0
	}
	return s.clock()
}

// nearby reports whether there is a copy of the record, which is the item then.
func (s *session) nearby(f *fetch) bool {
	if s.near == nil {
		return false
	}
	now := s.clock()
	s.mu.Lock()
	k := s.copied(s.m.Fingerprint(f.key), f.key, now)
	s.mu.Unlock()
	if k != nil {
		f.take(k.it.Value, k.it.Flags, k.it.CAS)
	}
	return k != nil
}

// copied returns a copy of a key's record that may be used; nil without one. mu must be
// held.
func (s *session) copied(fingerprint uint64, key []byte, now int64) *kept {
	k, ok := s.near.copies.GetIfPresent(fingerprint)
	if !ok || s.ended.Load() || !bytes.Equal(k.key, key) || now < s.near.from.Load() || !s.m.Holds(&k.entry, k.expiry, now, s.near.bound) || !s.holds(now) {
		return nil
	}
	s.c.count.near.Add(1)
	return k
}

// copiesFrom sets the time of the session's clock before which no copy is used.
func (s *session) copiesFrom(ms int64) {
	if s.near != nil {
		s.near.from.Store(ms)
	}
}

// mark returns the mark of a READ that is about to begin, for judge. mu must be held.
func (s *session) mark(fingerprint uint64) uint32 {
	if s.near == nil {
		return 0
	}
	return s.near.marks[fingerprint%marks]
}

// judge returns the verdict on a READ that began with a mark and had completed by the time now, and keeps a copy of a
// short record if none was dropped since. mu must be held, and the record's bytes still be in their buffer.
func (s *session) judge(r *wire.Record, err error, e *wire.Entry, now int64, mark uint32) mirror.Verdict {
	v := s.m.JudgeRecord(r, err, e, now)
	if v == mirror.Hit && !s.holds(now) {
		v = mirror.Ask
	}
	switch n := s.near; {
	case n == nil, v == mirror.Next:
	case v == mirror.Ask, !s.m.Has(e):
		n.copies.Invalidate(e.Fingerprint)
		n.marks[e.Fingerprint%marks]++
	case len(r.Value) <= n.most && mark == n.marks[e.Fingerprint%marks]:
		n.copies.Set(e.Fingerprint, &kept{*e, r.Expiry, bytes.Clone(r.Key), Item{bytes.Clone(r.Value), r.Flags, r.CAS}})
	}
	return v
}

// askClock asks the server for its clock, if so little is known of that that fresh copies
// look old. The reply has no waiter. mu must be held.
func (s *session) askClock() {
	n, now := s.near, s.clock()
	if n == nil || s.m.Age(now) < n.bound/4 || uint64(now-n.asked) < n.bound {
		return
	}
	n.asked = now
	s.last++
	s.calls[s.last] = &call{id: s.last, begun: s.elapsed(), done: make(chan error, 1)}
	s.out = wire.AppendRequest(s.out, &wire.Request{ID: s.last, Epoch: s.m.Epoch(), Request: kv.Request{Op: kv.OpGet, Want: kv.WantNoValue | kv.WantNoBump}})
	s.signal()
	s.c.count.calls.Add(1)
}
