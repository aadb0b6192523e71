package gateway

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache/kv"
)

// Inspector is a [Store] that lists its records. Of another store, stats items, slabs, sizes
// and cachedump list nothing.
//
// Records have no slabs. What these commands call a slab is a range of sizes: range i has the records
// of up to 1<<i bytes, with header and key, that are too long for range i-1.
type Inspector interface {
	// Ranges returns the ranges that have, or had, any records.
	Ranges() []kv.Range
	// Keys returns at most limit records of a range.
	Keys(id, limit int) []kv.Listed
}

const (
	maxRange = 63      // the number of the last slab that memcached can have
	maxDump  = 2 << 20 // bytes of a dump
)

// ranges returns those of the store, counted from the last stats reset on.
func (s *Server) ranges() []kv.Range {
	in, ok := s.cfg.Store.(Inspector)
	if !ok {
		return nil
	}
	all := in.Ranges()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		all[i].Events = all[i].Since(s.base.ranges[all[i].ID])
	}
	return all
}

// items returns the lines of stats items.
func (s *Server) items() (lines [][2]string) {
	for _, r := range s.ranges() {
		line := func(name string, n uint64) {
			lines = append(lines, number64(fmt.Sprintf("items:%d:%s", r.ID, name), n))
		}
		line("number", uint64(r.Records))
		line("mem_requested", uint64(r.Bytes))
		line("evicted", r.Evicted)
		line("evicted_nonzero", r.EvictedExpiring)
		line("evicted_time", r.EvictedIdle/1000)
		line("outofmemory", r.NoMemory)
		line("reclaimed", r.Expired)
		line("expired_unfetched", r.ExpiredUnfetched)
		line("evicted_unfetched", r.EvictedUnfetched)
	}
	return lines
}

// slabs returns the lines of stats slabs: each record has a chunk of its own, as long as it needs, so
// that none is free.
func (s *Server) slabs() (lines [][2]string) {
	active, bytes := 0, 0
	for _, r := range s.ranges() {
		line := func(name string, n uint64) { lines = append(lines, number64(fmt.Sprintf("%d:%s", r.ID, name), n)) }
		line("chunk_size", 1<<r.ID)
		line("total_chunks", uint64(r.Records))
		line("used_chunks", uint64(r.Records))
		line("free_chunks", 0)
		line("get_hits", r.Hits)
		line("cmd_set", r.Sets)
		line("delete_hits", r.Deletes)
		line("incr_hits", r.Incrs)
		line("decr_hits", r.Decrs)
		line("cas_hits", r.CASHits)
		line("cas_badval", r.CASMismatches)
		line("touch_hits", r.Touches)
		active, bytes = active+min(r.Records, 1), bytes+r.Bytes
	}
	return append(lines, number64("active_slabs", uint64(active)), number64("total_malloced", uint64(bytes)))
}

// sizes returns the lines of stats sizes: the number of records of up to so many bytes that are longer
// than those of the line before.
func (s *Server) sizes() (lines [][2]string) {
	for _, r := range s.ranges() {
		if r.Records > 0 {
			lines = append(lines, number64(u64(1<<r.ID), uint64(r.Records)))
		}
	}
	return lines
}

// dump lists keys of a range: stats cachedump range limit.
func (c *conn) dump(t []string) error {
	if len(t) < 4 {
		return c.say("CLIENT_ERROR bad command line")
	}
	id, ok1 := unsigned(t[2])
	limit, ok2 := unsigned(t[3])
	switch {
	case !ok1 || !ok2:
		return c.say(badFormat)
	case id > maxRange:
		return c.say("CLIENT_ERROR Illegal slab id")
	}
	const least = len("ITEM k [0 b; 0 s]\r\n")
	if limit == 0 || limit > maxDump/uint64(least) {
		limit = maxDump / uint64(least)
	}
	in, ok := c.s.cfg.Store.(Inspector)
	if !ok {
		return c.say("END")
	}
	left, now := maxDump, time.Now()
	for _, r := range in.Keys(int(id), int(limit)) {
		if breaksLine(r.Key) { // it did not come by a gateway
			continue
		}
		expires := int64(0)
		if r.Left >= 0 {
			expires = now.Add(time.Duration(r.Left) * time.Millisecond).Unix()
		}
		line := fmt.Sprintf("ITEM %s [%d b; %d s]\r\n", r.Key, r.Value, expires)
		if left -= len(line); left < 0 {
			break
		}
		_, _ = c.w.WriteString(line)
	}
	return c.say("END")
}
