package server

import (
	"errors"
	"time"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Tables of the map are registered as the records are: clients READ buckets of them.

// tableRetry is how long no memory is asked for again when there was none: the table goes on
// as it is, and evicts when two buckets are full.
const tableRetry = time.Second

// allocTable makes memory for a table. The mutex is held, or nobody else is there yet.
func (s *Server) allocTable(bytes int) ([]byte, wire.Where) {
	if time.Now().Before(s.tableAfter) {
		return nil, wire.Where{}
	}
	mr, err := s.records.AllocMR(bytes, verbs.MRConfig{Access: verbs.RemoteRead, ReadOnly: true, Pages: s.cfg.Pages})
	if err != nil {
		s.tableAfter = time.Now().Add(tableRetry)
		s.cfg.Logger.Error("cache: the map cannot grow", "bytes", bytes, "error", err)
		return nil, wire.Where{}
	}
	mem, r := mr.Bytes(), mr.Region()
	s.tables[&mem[0]] = mr
	return mem, wire.Where{Addr: r.Addr, Key: r.RKey}
}

// freeTable takes back what no client READs any more.
func (s *Server) freeTable(mem []byte) {
	mr := s.tables[&mem[0]]
	delete(s.tables, &mem[0])
	if mr == nil {
		return
	}
	if err := mr.Close(); err != nil {
		s.cfg.Logger.Error("cache: free a table of the map", "error", err)
	}
}

// freeTables frees all.
func (s *Server) freeTables() error {
	var errs []error
	for at, mr := range s.tables {
		delete(s.tables, at)
		errs = append(errs, mr.Close())
	}
	return errors.Join(errs...)
}
