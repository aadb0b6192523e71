package server

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/histogram"
)

// Stats are counters.
type Stats struct {
	Items      int    // records
	Bytes      int    // of memory that they take
	Memory     int    // bytes in all
	Quarantine int    // bytes that clients may still READ
	Table      int    // bytes of the map
	Clients    int    // that are connected by RDMA
	Streams    int    // that are connected by TCP
	Gets, Hits uint64 // by call
	Sets       uint64
	Stored     uint64 // records, by call
	Reported   uint64 // READs that clients reported: a sample
	Evicted    uint64
	// EvictedIdle is the time since the last access to the record that was evicted last.
	EvictedIdle time.Duration
	Moved       uint64 // records that were moved to make room for longer ones
	Expired     uint64
	Flushes     uint64
	NoMemory    uint64
	Cut         uint64 // clients that were cut off because they were late
	Epoch       uint32
	DC          DCStats
	Modes       map[string]int // connected clients by what they have of the map: see the Mode constants
	Sizes       []SizeRange    // of records, the shortest first
	// Latencies are how long requests took, from when they were read to when the reply was
	// queued. The transport is rdma, tcp (also of clients that READ through the target), or
	// gateway ([Server.Do]).
	Latencies []Latency `json:"-"`
	// EvictedAges counts evicted records by the milliseconds since their last access: entry i
	// of N those of less than 1<<i ms, and at least half of that.
	EvictedAges histogram.Counts `json:"-"`
}

// Latency is a histogram of the requests of one kind that came by one transport.
type Latency struct {
	Operation, Transport string
	Nanoseconds          histogram.Counts
}

// Modes of clients.
const (
	ModeWhole   = "whole map"   // READs by RDMA
	ModeBounded = "bounded map" // likewise, with a limit by MapBytes in the client's configuration
	ModeNone    = "no map"      // READs the server's table and then the record
	ModeDC      = "dc"          // has a map, and READs through the target
	ModeTCP     = "tcp"         // has no map, and makes everything a call
)

// SizeRange counts the records of more than half of UpTo, and up to UpTo bytes, with header and
// key. Records that were flushed count until their memory is free.
type SizeRange struct{ UpTo, Records, Bytes int }

// has returns the Mode constant of a client.
func (c *client) has() string {
	switch {
	case !c.reads:
		return ModeTCP
	case c.probes():
		return ModeNone
	case c.through:
		return ModeDC
	case c.mode == wire.Bounded:
		return ModeBounded
	}
	return ModeWhole
}

// sizes returns the ranges of sizes of which there can be records.
func (s *Server) sizes() (out []SizeRange) {
	all := s.store.Sizes()
	least, longest := bits.Len(uint(wire.RecordSize(1, 0))), bits.Len(uint(s.cfg.longest()-1))
	for i := least; i <= longest; i++ {
		out = append(out, SizeRange{1 << i, all[i].Records, all[i].Bytes})
	}
	return out
}

// Stats returns the counters, which are zero after Close.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return Stats{}
	}
	n := s.store.Stats()
	modes := map[string]int{ModeWhole: 0, ModeBounded: 0, ModeNone: 0, ModeDC: 0, ModeTCP: 0}
	for _, c := range s.clients {
		modes[c.has()]++
	}
	streams := modes[ModeTCP]
	return Stats{
		Streams: streams, Items: n.Items, Bytes: n.Arena.Live, Memory: n.Arena.Total, Quarantine: n.Arena.Quarantine, Table: n.Table, Clients: len(s.clients) - streams,
		Gets: n.Gets, Hits: n.Hits, Sets: n.Sets, Stored: n.Stored, Reported: n.Reports, Evicted: n.Evicted, EvictedIdle: time.Duration(n.EvictedIdle) * time.Millisecond, Moved: n.Moved, Expired: n.Expired,
		Flushes: n.Flushes, NoMemory: n.NoMemory, Cut: n.Cut - s.through.absent, Epoch: s.epoch, DC: s.throughStats(),
		Modes: modes, Sizes: s.sizes(), Latencies: latency.Load[Latency](&s.latency), EvictedAges: s.store.EvictedAges(),
	}
}

// HotKey is a key that is asked for often.
type HotKey struct {
	Key   string
	Share float64 // of all gets that find something, by READ or by call
}

// HotKeys returns up to n keys with the most gets, the hottest first. It uses a sample of one
// in 16 of the recent gets that found something. Each key has more than one in 64 of
// them.
func (s *Server) HotKeys(n int) (keys []HotKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return nil
	}
	for _, k := range s.store.Hot(n) {
		keys = append(keys, HotKey{string(k.Key), k.Share})
	}
	return keys
}

// Ranges returns how many records there are of which sizes, and what happened to them.
func (s *Server) Ranges() []kv.Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return nil
	}
	return s.store.Ranges()
}

// Keys returns at most limit records of a range of sizes. Changes that come meanwhile do not wait
// for it.
func (s *Server) Keys(id, limit int) (list []kv.Listed) {
	step := func(from int) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.store != nil {
			list, from = s.store.Keys(s.now(), id, from, limit, list)
			return from
		}
		return 0
	}
	for from := step(0); from > 0; {
		from = step(from)
	}
	return list
}

// StatLines returns the lines of memcached's stats command that come from the store.
func (s *Server) StatLines() [][2]string {
	n := s.Stats()
	var evicted, expired uint64
	for _, r := range s.Ranges() {
		evicted, expired = evicted+r.EvictedUnfetched, expired+r.ExpiredUnfetched
	}
	line := func(name string, v uint64) [2]string { return [2]string{name, strconv.FormatUint(v, 10)} }
	return [][2]string{
		line("curr_items", uint64(n.Items)), line("total_items", n.Stored),
		line("bytes", uint64(n.Bytes)), line("limit_maxbytes", uint64(n.Memory)), line("hash_bytes", uint64(n.Table)),
		line("evictions", n.Evicted), line("reclaimed", n.Expired), line("evicted_unfetched", evicted), line("expired_unfetched", expired),
		line("rdma_records_moved", n.Moved), line("rdma_clients", uint64(n.Clients)), line("rdma_reads_reported", n.Reported),
		line("rdma_quarantine_bytes", uint64(n.Quarantine)), line("rdma_epoch", uint64(n.Epoch)),
	}
}
