package server

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/histogram"
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
	Shared      SharedStats
	DC          DCStats
	Modes       map[string]int // connected clients by what they have of the map: see the Mode constants
	Sizes       []SizeRange    // of records, the shortest first
	// Latencies are how long requests took, from when they were read to when the reply was
	// queued. The transport is rdma, tcp (also of clients that READ through the target), or
	// gateway ([Server.Do]).
	Latencies []Latency `json:"-"`
	// EvictedAges counts evicted records by the milliseconds since their last access: entry i
	// of N those of less than 1<<i ms, and at least half of that.
	EvictedAges Histogram `json:"-"`
}

// Latency is a histogram of the requests of one kind that came by one transport.
type Latency = latency.Latency

// Histogram has buckets of powers of two.
type Histogram = histogram.Counts

// Modes of clients.
const (
	ModeWhole   = "whole map"   // READs by RDMA
	ModeBounded = "bounded map" // likewise, with MapBytes or MaxEntries in the client's configuration
	ModeDC      = "dc"          // READs through the target
	ModeTCP     = "tcp"         // has no map, and makes everything a call
)

// SizeRange counts the records of more than half of UpTo, and up to UpTo bytes, with header and
// key. Records that were flushed count until their memory is free.
type SizeRange struct{ UpTo, Records, Bytes int }

// mode returns the client's mode.
func (c *client) mode() string {
	switch {
	case !c.reads:
		return ModeTCP
	case c.through:
		return ModeDC
	case c.part:
		return ModeBounded
	}
	return ModeWhole
}

// by returns the transport of the client's messages.
func (c *client) by() latency.Transport {
	if c.reads && !c.through {
		return latency.RDMA
	}
	return latency.TCP
}

// took counts a request that came at a time since the server began, and has its reply now.
func (s *Server) took(by latency.Transport, op latency.Op, came time.Duration) {
	s.latency.Add(by, op, time.Since(s.begun)-came)
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
	streams, modes := 0, map[string]int{ModeWhole: 0, ModeBounded: 0, ModeDC: 0, ModeTCP: 0}
	for _, c := range s.clients {
		if modes[c.mode()]++; !c.reads {
			streams++
		}
	}
	return Stats{
		Streams: streams,
		Items:   n.Items, Bytes: n.Arena.Live, Memory: n.Arena.Total, Quarantine: n.Arena.Limbo, Table: n.Table, Clients: len(s.clients) - streams,
		Gets: n.Gets, Hits: n.Hits, Sets: n.Sets, Reported: n.Reports, Evicted: n.Evicted, EvictedIdle: time.Duration(n.EvictedIdle) * time.Millisecond, Moved: n.Moved, Expired: n.Expired,
		Flushes: n.Flushes, NoMemory: n.NoMemory, Cut: n.Cut - s.through.absent, Epoch: s.epoch, Shared: s.shared.stats(), DC: s.throughStats(),
		Modes: modes, Sizes: s.sizes(), Latencies: s.latency.Load(), EvictedAges: s.store.EvictedAges(),
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

// StatLines returns the lines of memcached's stats command that come from the store.
func (s *Server) StatLines() [][2]string {
	n := s.Stats()
	line := func(name string, v uint64) [2]string { return [2]string{name, strconv.FormatUint(v, 10)} }
	return [][2]string{
		line("uptime", uint64(time.Since(s.begun)/time.Second)), line("curr_items", uint64(n.Items)),
		line("bytes", uint64(n.Bytes)), line("limit_maxbytes", uint64(n.Memory)), line("evictions", n.Evicted),
		line("evicted_time", uint64(n.EvictedIdle/time.Second)), line("rdma_records_moved", n.Moved),
		line("expired_unfetched", n.Expired), line("rdma_clients", uint64(n.Clients)), line("rdma_reads_reported", n.Reported),
		line("rdma_quarantine_bytes", uint64(n.Quarantine)), line("rdma_epoch", uint64(n.Epoch)),
	}
}
