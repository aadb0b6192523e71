package dc

import (
	"context"
	"errors"
	"sync"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// handles are address handles, one for each port: as many as are allowed, the
// most recently used ones. To make one may take as long as finding the neighbour
// does, so that has a goroutine of its own and no lock.
type handles struct {
	c       *Control
	limit   int
	mu      sync.Mutex
	at      map[way]*handle
	first   *handle // most recently used
	last    *handle
	wanted  chan unsent
	retired []*handle // that sends may still use
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
	s.at, s.wanted = make(map[way]*handle), make(chan unsent, controlSends)
}

// get answers a handle that is there, until put.
func (s *handles) get(to wire.ControlAddress) *handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.at[way{to.GID, to.LID}]
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

// want has a handle made and the message sent, unless too many wait for that.
func (s *handles) want(to wire.ControlAddress, m *wire.Message) {
	select {
	case s.wanted <- unsent{to, *m}:
	default:
		s.c.dropped.Add(1)
	}
}

func (s *handles) resolve(ctx context.Context) {
	for {
		select {
		case u := <-s.wanted:
			h, err := s.find(u.to)
			if err != nil {
				s.c.dropped.Add(1)
				s.c.log.Warn("dc: control message not sent", "to", verbs.GID(u.to.GID), "err", err)
				continue
			}
			s.c.sendBy(h, u.to, &u.m)
			s.put(h)
		case <-ctx.Done():
			return
		}
	}
}

// find is get that makes what is missing.
func (s *handles) find(to wire.ControlAddress) (*handle, error) {
	if h := s.get(to); h != nil {
		return h, nil
	}
	c := s.c
	ah, err := c.pd.CreateAH(verbs.AHAttr{GID: verbs.GID(to.GID), DLID: to.LID, SGIDIndex: c.gid.Index, Port: c.gid.Port, TrafficClass: c.cfg.TrafficClass})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &handle{way: way{to.GID, to.LID}, ah: ah, users: 1}
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
