package server

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/store"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Tables of the map are registered as the records are: clients READ buckets of them.

// tableRetry is how long no memory is asked for again when there was none: the table goes on
// as it is, and evicts when two buckets are full.
const tableRetry = time.Second

// quickTable is the longest table, in bytes, that is registered with s.mu held. A longer one is
// registered without it: the device pins its pages, which takes milliseconds, and the old table has
// room for what comes meanwhile.
const quickTable = 1 << 20

// tables holds the tables that there are. The server's mu guards it.
type tables struct {
	register func(bytes int) (memory, error)
	all      map[*byte]memory // by their first byte
	serving  bool             // others may be waiting
	making   bool             // one is being registered
	ready    memory           // one that was, until the map takes it
	after    time.Time        // when memory may be asked for again
}

// memory is registered, as [verbs.MR] is.
type memory interface {
	Bytes() []byte
	Region() verbs.Region
	Close() error
}

// registerTable registers memory that clients may READ.
func (s *Server) registerTable(bytes int) (memory, error) {
	mr, err := s.records.AllocMR(bytes, verbs.MRConfig{Access: verbs.RemoteRead, ReadOnly: true, Pages: s.cfg.Pages})
	if err != nil {
		return nil, err
	}
	return mr, nil
}

// allocTable makes memory for a table. If there is none now it may be there later: the map asks again
// with each change. s.mu must be held, unless the server is still being made.
func (s *Server) allocTable(bytes int) ([]byte, wire.Where) {
	t := &s.tables
	if m := t.ready; m != nil {
		t.ready = nil
		if len(m.Bytes()) == bytes {
			return s.takeTable(m)
		}
		s.closeTable(m)
	}
	switch {
	case t.making || time.Now().Before(t.after):
	case bytes <= quickTable || !t.serving:
		m, err := t.register(bytes)
		if err == nil {
			return s.takeTable(m)
		}
		s.noTable(bytes, err)
	default:
		s.beginTable(bytes)
	}
	return nil, wire.Where{}
}

// soonTable is called when a table will be asked for. s.mu must be held, unless the server is still
// being made.
func (s *Server) soonTable(bytes int) {
	if t := &s.tables; t.ready == nil && !t.making && t.serving && bytes > quickTable && !time.Now().Before(t.after) {
		s.beginTable(bytes)
	}
}

// beginTable begins to register a table. s.mu must be held.
func (s *Server) beginTable(bytes int) {
	if !s.closed { // otherwise Close would not wait for it
		s.tables.making = true
		s.running.Go(func() { s.makeTable(bytes) })
	}
}

// makeTable registers a table while the server does other things, and has the map grow.
func (s *Server) makeTable(bytes int) {
	m, err := s.tables.register(bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables.making = false
	if err != nil {
		s.noTable(bytes, err)
		return
	}
	s.tables.ready = m
	s.store.Tick(s.now(), 1)
	s.announce()
}

// noTable logs that there is no memory for a table, and delays the next attempt.
func (s *Server) noTable(bytes int, err error) {
	s.tables.after = time.Now().Add(tableRetry)
	s.cfg.Logger.Error("cache: the map cannot grow", "bytes", bytes, "error", err)
}

func (s *Server) takeTable(m memory) ([]byte, wire.Where) {
	mem, r := m.Bytes(), m.Region()
	s.tables.all[&mem[0]] = m
	return mem, wire.Where{Addr: r.Addr, Key: r.RKey}
}

// freeTable frees what no client READs any more. s.mu must be held.
func (s *Server) freeTable(mem []byte) {
	m := s.tables.all[&mem[0]]
	delete(s.tables.all, &mem[0])
	switch {
	case m == nil:
	case len(mem) > quickTable && s.tables.serving && !s.closed:
		s.running.Go(func() { s.closeTable(m) })
	default:
		s.closeTable(m)
	}
}

func (s *Server) closeTable(m memory) {
	if err := m.Close(); err != nil {
		s.cfg.Logger.Error("cache: free a table of the map", "error", err)
	}
}

// freeTables frees all.
func (s *Server) freeTables() error {
	var errs []error
	if m := s.tables.ready; m != nil {
		s.tables.ready = nil
		errs = append(errs, m.Close())
	}
	for at, m := range s.tables.all {
		delete(s.tables.all, at)
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// empty makes an empty store of the memory, of an epoch of its own.
func (s *Server) empty() error {
	a, err := arena.New(s.cfg.longest())
	if err != nil {
		return err
	}
	for _, mr := range s.arena {
		if _, err := a.Add(mr.Bytes()); err != nil {
			return err
		}
	}
	if err := s.freeTables(); err != nil {
		return err
	}
	var secret [20]byte
	_, _ = rand.Read(secret[:]) // never fails
	le := binary.LittleEndian
	s.epoch = max(le.Uint32(secret[16:]), 1)
	s.store, err = store.New(store.Config{
		Epoch: s.epoch, Secret: wire.Secret{le.Uint64(secret[:]), le.Uint64(secret[8:])}, Arena: a,
		AllocTable: s.allocTable, FreeTable: s.freeTable, SoonTable: s.soonTable,
		Depth: 8, // in a smaller one two full buckets are not rare, which cost a record
		Log:   s.cfg.Log, Lease: uint64(s.cfg.Lease / time.Millisecond), MaxValue: s.cfg.MaxValue,
		CAS: firstCAS(time.Now()),
	})
	return err
}

// firstCAS returns what the CAS numbers of a life are above. A client may have kept one of a life that
// left no snapshot, and must not replace by it what it has never seen. No life stores a record each
// nanosecond, so the numbers of the next one are higher.
func firstCAS(begun time.Time) uint64 { return uint64(begun.UnixNano()) }
