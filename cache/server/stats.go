package server

import (
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cache/internal/store"
)

// Stats are counters.
type Stats struct {
	Items      int    // records
	Bytes      int    // of memory that they take
	Memory     int    // bytes in all
	Quarantine int    // bytes that clients may still READ
	Table      int    // bytes of the map
	Clients    int    // that are connected by RDMA
	Probing    int    // of those, clients without a map, which READ the server's
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
}

// Stats returns the counters, which are zero after Close.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return Stats{}
	}
	n := s.store.Stats()
	streams, probing := 0, 0
	for _, c := range s.clients {
		switch {
		case !c.reads:
			streams++
		case c.probes():
			probing++
		}
	}
	return Stats{
		Streams: streams, Probing: probing,
		Items: n.Items, Bytes: n.Arena.Live, Memory: n.Arena.Total, Quarantine: n.Arena.Limbo, Table: n.Table, Clients: len(s.clients) - streams,
		Gets: n.Gets, Hits: n.Hits, Sets: n.Sets, Stored: n.Stored, Reported: n.Reports, Evicted: n.Evicted, EvictedIdle: time.Duration(n.EvictedIdle) * time.Millisecond, Moved: n.Moved, Expired: n.Expired,
		Flushes: n.Flushes, NoMemory: n.NoMemory, Cut: n.Cut - s.through.absent, Epoch: s.epoch, DC: s.throughStats(),
	}
}

// HotKey is a key that is asked for often.
type HotKey struct {
	Key   string
	Share float64 // of all gets that find something, by READ or by call
}

// Hot returns up to n keys with the most gets, the hottest first. It uses a sample of one
// in 16 of the recent gets that found something. Each key has more than one in 64 of
// them.
func (s *Server) Hot(n int) (keys []HotKey) {
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
func (s *Server) Ranges() []store.Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return nil
	}
	return s.store.Ranges()
}

// Keys returns at most limit records of a range of sizes. Changes that come meanwhile do not wait
// for it.
func (s *Server) Keys(id, limit int) (list []store.Listed) {
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
