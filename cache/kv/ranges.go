package kv

// Range is what is known of the records of a range of sizes, with header and key: longer than 1<<(ID-1)
// bytes, and up to 1<<ID.
type Range struct {
	ID      int
	Records int // now, those included that were flushed and are not removed
	Bytes   int // of memory that they take
	Events
}

// Events counts what happened to the records of a range: by requests, not READs, and how records left.
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

// Listed is a record in a list.
type Listed struct {
	Key   string
	Value int   // its length in bytes
	Left  int64 // ms until it expires; -1: never
}
