// Package store is the server without devices, clocks and locks: what each request does to
// the arena, the table, the eviction queue and the log of deltas.
//
// The driver calls it from one goroutine at a time, tells it the time, carries requests in and
// replies, deltas and chunks out, and cuts off the clients that [Store.Late] names. A reply may be
// sent only after the stores to memory that came before it are visible to the device.
package store

import (
	"fmt"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/evict"
	"github.com/goverbs/goverbs/cache/internal/expiry"
	"github.com/goverbs/goverbs/cache/internal/hot"
	"github.com/goverbs/goverbs/cache/internal/table"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/histogram"
)

// Config is what a store is made of. Times are in ms.
type Config struct {
	Epoch    uint32      // of this life of the server; not 0
	Secret   wire.Secret // of the fingerprints
	Arena    *arena.Arena
	Depth    int // of the table at the beginning
	MaxDepth int // and at most; 0: as a region allows
	// AllocTable gives memory for a table, or none: then it is asked again with each change,
	// and records may have to go for want of a place. FreeTable takes back what no client
	// READs any more. SoonTable, which may be nil, is told what will be asked for soon, with
	// each change until it is.
	AllocTable func(bytes int) (mem []byte, where wire.Where)
	FreeTable  func(mem []byte)
	SoonTable  func(bytes int)
	Log        int    // deltas that are kept for slow clients; 0: 65536
	Lease      uint64 // after which a client that is behind is cut off; 0: 5000
	MaxValue   int    // bytes; 0: as the arena's longest record allows
	CAS        uint64 // numbers of records are above it: those of other lives are below
}

// Store is not for several goroutines.
type Store struct {
	cfg      Config
	arena    *arena.Arena
	table    *table.Table
	queue    *evict.Queue
	items    []item
	free     []uint32 // numbers of items
	version  uint64
	cas      uint64
	casStep  uint64
	sharded  bool // the store is one of a cluster's
	now      uint64
	log      log
	clients  clients
	retired  []retired // arrays that the table has left
	movedAt  uint64    // the delta with which it left the last one
	trail    trail
	released uint64 // slots freed up to this delta have left quarantine
	flushAt  uint64 // 0: never
	flushed  flushed
	expiring *expiry.Queue
	found    []wire.Entry
	crowd    [][]byte
	scratch  []byte
	reply    wire.Reply // of Do
	request  kv.Request // that it carries out
	longest  int        // of the records of late
	pinned   uint32     // an item that must not be moved just now
	stats    Stats
	sizes    Sizes
	events   [len(Sizes{})]kv.Events
	ages     histogram.Counts // of evicted records
	hot      hot.Keys
	calls    uint64 // state of the sampler of gets by RPC

	// between is called between two stores to memory that clients READ. Tests READ then.
	between func()
}

// item is what the server knows of a record beside the record.
type item struct {
	place       wire.Place
	version     uint64 // 0: there is none
	fingerprint uint64
	expiry      uint64
	accessed    uint64
	trail       uint64 // the number of its last tombstone
	fetched     bool
	shard       uint16 // if the store has shards
}

// flushed is the last flush. What it has removed is there until it becomes a tombstone.
type flushed struct {
	version uint64 // records up to this one
	left    int    // how many of them are there
	next    int    // the next item to look at
}

type retired struct {
	seq uint64
	mem []byte
}

const noItem = ^uint32(0)

// Stats are counters.
type Stats struct {
	Items       int
	Gets, Hits  uint64 // by requests, not READs
	Sets        uint64
	Stored      uint64 // records that requests stored, with those that gets and arithmetic made
	Evicted     uint64
	Crowded     uint64 // evicted since their buckets were full
	EvictedIdle uint64 // ms since the last access to the one that was evicted last
	Moved       uint64 // to make room for longer ones
	Expired     uint64
	Flushes     uint64
	Reports     uint64 // READs that clients reported: a sample
	Reads       uint64 // hits by READ, as they reported
	NoMemory    uint64
	Cut         uint64 // clients
	Table       int    // bytes
	Arena       arena.Stats
}

// New makes an empty store.
func New(cfg Config) (*Store, error) {
	if cfg.Epoch == 0 {
		return nil, fmt.Errorf("cache: epoch 0: a server's life has another number")
	}
	if cfg.Log == 0 {
		cfg.Log = 1 << 16
	}
	if cfg.Lease == 0 {
		cfg.Lease = 5000
	}
	if cfg.MaxValue == 0 || cfg.MaxValue > wire.MaxValue {
		cfg.MaxValue = wire.MaxValue
	}
	t, err := table.New(table.Config{Epoch: cfg.Epoch, Depth: cfg.Depth, MaxDepth: cfg.MaxDepth, Alloc: cfg.AllocTable})
	if err != nil {
		return nil, err
	}
	return &Store{
		cfg: cfg, arena: cfg.Arena, table: t, queue: evict.New(), expiring: expiry.New(), log: log{ring: make([]wire.Delta, cfg.Log)},
		clients: clients{lease: cfg.Lease}, pinned: noItem, cas: cfg.CAS, casStep: 1,
	}, nil
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	st := s.stats
	st.Items = s.table.Len() - s.flushed.left
	st.Arena = s.arena.Stats()
	_, depth := s.table.Where()
	st.Table = wire.BucketSize << depth
	return st
}

func (s *Store) pause() {
	if s.between != nil {
		s.between()
	}
}

// advance takes the time, which never goes back.
func (s *Store) advance(now uint64) {
	s.now = max(s.now, now)
	if s.flushAt != 0 && s.flushAt <= s.now {
		s.flush()
	}
}

// lookup finds the live record of a key.
func (s *Store) lookup(fingerprint uint64, key []byte) (uint32, wire.Record, bool) {
	s.found = s.table.Candidates(fingerprint, s.found[:0])
	for _, e := range s.found {
		r := wire.PeekRecord(s.arena.Bytes(e.Place))
		if string(r.Key) != string(key) {
			continue
		}
		if s.isFlushed(e.Version) {
			s.remove(e.Item)
			break
		}
		if r.Expired(s.now) {
			s.expired(e.Item)
			s.remove(e.Item)
			break
		}
		return e.Item, r, true
	}
	return noItem, wire.Record{}, false
}

func (s *Store) entry(id uint32) wire.Entry {
	it := &s.items[id]
	return wire.Entry{Fingerprint: it.fingerprint, Version: it.version, Place: it.place, Epoch: s.cfg.Epoch, Item: id}
}

// write puts a record in the place of item id, or of nothing (noItem). Key and value of r may lie in the old
// record.
func (s *Store) write(id uint32, r *wire.Record) (uint32, kv.Status) {
	n := wire.RecordSize(len(r.Key), len(r.Value))
	if !s.arena.Fits(n) || len(r.Value) > s.cfg.MaxValue {
		return id, kv.TooLarge
	}
	s.queue.Access(r.Fingerprint, 1)
	fresh := id == noItem
	if fresh {
		id = s.newItem()
		if !s.makeRoomInTable(r.Fingerprint) {
			s.free = append(s.free, id)
			return noItem, kv.NoMemory
		}
	} else {
		s.queue.Remove(id) // it is not evicted
		s.pinned = id
	}
	place, ok := s.alloc(n)
	s.pinned = noItem
	switch {
	case ok:
		s.put(id, r, place)
		s.longest = max(n, s.longest-s.longest/256)
		s.items[id].accessed, s.items[id].fetched = s.now, false
	case fresh:
		s.stats.NoMemory++
		s.eventsOf(n).NoMemory++
		s.free = append(s.free, id)
		return noItem, kv.NoMemory
	default:
		s.stats.NoMemory++
		s.eventsOf(n).NoMemory++
		place = s.items[id].place
	}
	s.queue.Insert(id, r.Fingerprint, place.Length())
	if !ok {
		return id, kv.NoMemory
	}
	s.grow()
	s.prepare(id)
	return id, kv.OK
}

// put writes a record to a place, of an item that may have another one. The tombstone goes into the old record
// before anything says where the new one is, and then leads there: the new record's place is freed after the old
// one's, and so leaves quarantine after it.
func (s *Store) put(id uint32, r *wire.Record, place wire.Place) {
	s.version++
	r.Version, r.Epoch = s.version, s.cfg.Epoch
	mem := s.arena.Bytes(place)
	wire.PutRecord(mem, r)
	s.sized(place, 1)
	s.pause()
	wire.Publish(mem)
	s.pause()

	it := &s.items[id]
	old := *it
	it.place, it.version, it.fingerprint, it.expiry = place, r.Version, r.Fingerprint, r.Expiry
	if s.sharded {
		it.shard = shardOf(r.Key)
	}
	if old.version == 0 {
		s.table.Put(s.entry(id))
	} else {
		tombstone := s.arena.Bytes(old.place)
		wire.Bury(tombstone)
		s.pause()
		wire.Forward(tombstone, place, r.Version)
		s.pause()
		s.lead(old.trail, place, r.Version)
		s.table.Replace(old.version, s.entry(id))
	}
	if old.expiry != it.expiry {
		s.expiring.Remove(id)
		if it.expiry != 0 {
			s.expiring.Insert(id, it.expiry)
		}
	}
	s.log.add(wire.Delta{Change: wire.ChangePut, Gone: old.version, Entry: s.entry(id)})
	if old.version != 0 {
		it.trail = s.trail.add(step{old.place, s.log.last, old.trail})
		s.release(old.place)
	}
}

func (s *Store) newItem() uint32 {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	s.items = append(s.items, item{})
	return uint32(len(s.items) - 1)
}

// remove makes an item's record a tombstone and forgets it. The delta of what was flushed has been sent.
func (s *Store) remove(id uint32) {
	it := s.items[id]
	wire.Bury(s.arena.Bytes(it.place))
	s.pause()
	s.table.Delete(it.fingerprint, it.version)
	s.queue.Remove(id)
	s.expiring.Remove(id)
	s.items[id] = item{}
	s.free = append(s.free, id)
	if s.isFlushed(it.version) {
		s.flushed.left--
	} else {
		s.log.add(wire.Delta{Change: wire.ChangeGone, Gone: it.version, Entry: wire.Entry{Fingerprint: it.fingerprint, Epoch: s.cfg.Epoch}})
	}
	s.release(it.place)
}

// release puts a slot into quarantine behind the last delta.
func (s *Store) release(p wire.Place) {
	s.sized(p, -1)
	s.arena.Free(p, s.log.last)
	s.leave()
}

// Tick does what time brings, and up to n steps of what need not be done at once: none of them looks at what
// another one has. It reports whether there is more to do.
func (s *Store) Tick(now uint64, n int) (more bool) {
	s.advance(now)
	for range n {
		s.grow()
	}
	for ; n > 0 && s.reclaim(); n-- {
	}
	s.settle()
	return n == 0
}

// Reported takes a sample of what a client READ.
func (s *Store) Reported(r *wire.Report) {
	if r.Epoch != s.cfg.Epoch {
		return
	}
	s.stats.Reads += r.Hits
	for _, a := range r.Accesses {
		s.found = s.table.Candidates(a.Fingerprint, s.found[:0])
		for _, e := range s.found {
			if e.Version == a.Version {
				s.stats.Reports++
				s.hot.Access(a.Fingerprint)
				s.queue.Access(a.Fingerprint, sampleCalls)
				s.items[e.Item].fetched, s.items[e.Item].accessed = true, s.now
			}
		}
	}
}
