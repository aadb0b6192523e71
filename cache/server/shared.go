package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// SharedConfig configures records that clients change directly, under locks in remote
// memory ([github.com/goverbs/goverbs/lockoffload]). The zero value has none.
type SharedConfig struct {
	// Records is how many there may be; 0 means none.
	Records int
	// Size is the most bytes that one has; 0 means 64.
	Size int
	// Clients is how many clients may use them at a time; 0 means 64.
	Clients int
	// Lease is how long a client may be silent. What a silent client had locked is given
	// to others within three leases. 0 means the server's lease, and at least a second.
	Lease time.Duration
	// Port is where clients connect for shared records, at the address of the server; 0
	// means any.
	Port int
}

// shared holds those records. They have no eviction, no expiry and no snapshot: they last for one life
// of the server. The server's mu guards the names.
type shared struct {
	pd     *verbs.PD
	target *lockoffload.Listener // nil: there are none
	port   uint32
	most   int
	size   []byte // of each, as a reply has it
	names  map[string]int
}

// openShared makes the records that the configuration asks for.
func (s *Server) openShared() (err error) {
	cfg, h := s.cfg.Shared, &s.shared
	if cfg.Records == 0 {
		return nil
	}
	if cfg.Size == 0 {
		cfg.Size = 64
	}
	if cfg.Lease == 0 {
		cfg.Lease = max(s.cfg.Lease, time.Second)
	}
	if h.pd, err = s.dev.AllocPD(); err != nil {
		return err
	}
	gid, err := s.findGID()
	if err != nil {
		return err
	}
	h.target, err = lockoffload.Listen(h.pd, net.JoinHostPort(s.listensAt().String(), strconv.Itoa(cfg.Port)), lockoffload.ListenConfig{
		Layout: lockoffload.Layout{Slots: cfg.Records, Size: cfg.Size, Clients: cfg.Clients},
		Key:    greet.SharedKey(s.cfg.Key, s.epoch), GID: gid, Connect: s.cfg.Connect, Lease: cfg.Lease, NoAgent: true,
		Grace:  -1, // clients lock for one change of a record, and rely on no lock elsewhere
		Logger: s.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("cache: shared records: %w", err)
	}
	h.size = binary.LittleEndian.AppendUint32(nil, uint32(cfg.Size))
	h.port, h.most, h.names = uint32(h.target.Addr().(*net.TCPAddr).Port), cfg.Records, map[string]int{}
	return nil
}

// SharedStats are counters of the records that clients change directly. The server is not
// told what clients do with these records.
type SharedStats struct {
	Records   int    // that were asked for
	Most      int    // that there may be; 0: the server has none
	Clients   int    // that are connected for them
	Late      uint64 // clients that let their leases run out
	Recovered uint64 // locks, readers' places and places in queues that were taken back from clients that had ended
}

// stats returns the counters. The server's mu must be held.
func (h *shared) stats() SharedStats {
	if h.target == nil {
		return SharedStats{}
	}
	n := h.target.Stats()
	return SharedStats{
		Records: len(h.names), Most: h.most, Clients: int(n.Admitted - n.Ended - n.Expired), Late: n.Expired, Recovered: n.Recovered,
	}
}

// find puts into the reply where the record of a name is: a new one if there is none.
func (h *shared) find(q *wire.Request, a *wire.Reply) {
	n, ok := h.names[string(q.Key)]
	switch {
	case h.target == nil:
		a.Status = wire.NotStored
		return
	case !ok && len(h.names) == h.most:
		a.Status = wire.NoMemory
		return
	case !ok:
		n = len(h.names)
		h.names[string(q.Key)] = n
	}
	a.Status, a.Number, a.Flags, a.Value = wire.OK, uint64(n), h.port, h.size
}

func (h *shared) close() error {
	var errs []error
	if h.target != nil {
		errs = append(errs, h.target.Close())
	}
	if h.pd != nil {
		errs = append(errs, h.pd.Close())
	}
	return errors.Join(errs...)
}
