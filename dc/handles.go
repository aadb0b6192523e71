package dc

import (
	"errors"
	"sync"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// handles are address handles, one for each port: as many as are allowed, the
// most recently used ones. To make one may take as long as finding the neighbour
// does, a second for one that is not there: so each has a goroutine of its own
// meanwhile, and no lock.
type handles struct {
	c       *Control
	limit   int
	mu      sync.Mutex
	at      map[way]*handle
	first   *handle // most recently used
	last    *handle
	wanted  map[way][]unsent // messages that wait for a port which is sought
	retired []*handle        // that sends may still use
}

type way struct {
	gid wire.GID
	lid uint16
}

type handle struct {
	way   way
	ah    *verbs.AH
	users int
	newer *handle
	older *handle
}

// unsent is a message whose way has to be found.
type unsent struct {
	to wire.ControlAddress
	m  wire.Message
}

func (s *handles) init(c *Control, limit int) {
	s.c, s.limit = c, limit
	s.at, s.wanted = make(map[way]*handle), make(map[way][]unsent)
}

// get answers a handle that is there, until put.
func (s *handles) get(at way) *handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.at[at]
	if h != nil {
		h.users++
		if s.first != h {
			s.unlink(h)
			s.link(h)
		}
	}
	return h
}

func (s *handles) put(h *handle) {
	s.mu.Lock()
	h.users--
	s.mu.Unlock()
}

func (s *handles) link(h *handle) {
	h.newer, h.older = nil, s.first
	if s.first != nil {
		s.first.newer = h
	} else {
		s.last = h
	}
	s.first = h
}

func (s *handles) unlink(h *handle) {
	if h.newer != nil {
		h.newer.older = h.older
	} else {
		s.first = h.older
	}
	if h.older != nil {
		h.older.newer = h.newer
	} else {
		s.last = h.newer
	}
}

// want has a handle made and the message sent, beside everything else. It drops the
// message if too many wait for that.
func (s *handles) want(to wire.ControlAddress, m *wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := way{to.GID, to.LID}
	waiting, sought := s.wanted[at]
	switch {
	case !sought && len(s.wanted) >= maxSought, len(waiting) >= maxUnsent:
		s.c.dropped.Add(1)
		return
	case !sought:
		s.c.work.Go(func() { s.seek(at) })
	}
	s.wanted[at] = append(waiting, unsent{to, *m})
}

const (
	maxSought = 64 // ports that are sought at once
	maxUnsent = 16 // messages that wait for one
)

// seek makes a handle, and sends what waits for it.
func (s *handles) seek(at way) {
	h, err := s.find(at)
	s.mu.Lock()
	waiting := s.wanted[at]
	delete(s.wanted, at)
	s.mu.Unlock()
	if err != nil {
		s.c.dropped.Add(uint64(len(waiting)))
		s.c.log.Warn("dc: control messages not sent", "to", verbs.GID(at.gid), "err", err)
		return
	}
	for k := range waiting {
		s.c.sendBy(h, waiting[k].to, &waiting[k].m)
	}
	s.put(h)
}

// find is get that makes what is missing.
func (s *handles) find(at way) (*handle, error) {
	if h := s.get(at); h != nil {
		return h, nil
	}
	c := s.c
	ah, err := c.pd.CreateAH(verbs.AHAttr{GID: verbs.GID(at.gid), DLID: at.lid, SGIDIndex: c.gid.Index, Port: c.gid.Port, TrafficClass: c.cfg.TrafficClass})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &handle{way: at, ah: ah, users: 1}
	s.at[h.way] = h
	s.link(h)
	if len(s.at) > s.limit {
		s.evict()
	}
	return h, nil
}

// evict gives up the handle that was used longest ago. It is closed when the
// sends that may use it have completed, after as many others as the queue holds sends.
func (s *handles) evict() {
	for h := s.last; h != nil; h = h.newer {
		if h.users == 0 {
			s.unlink(h)
			delete(s.at, h.way)
			s.retired = append(s.retired, h)
			break
		}
	}
	for len(s.retired) > controlSends {
		if err := s.retired[0].ah.Close(); err != nil {
			s.c.log.Warn("dc: address handle", "err", err)
		}
		s.retired = s.retired[1:]
	}
}

func (s *handles) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for h := s.first; h != nil; h = h.older {
		errs = append(errs, h.ah.Close())
	}
	for _, h := range s.retired {
		errs = append(errs, h.ah.Close())
	}
	s.first, s.last, s.at, s.retired = nil, nil, nil, nil
	return errors.Join(errs...)
}
