package dc

import (
	"errors"
	"sync"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// handles are address handles, one for each port: as many as are allowed, the
// most recently used ones. To make one may take as long as finding the neighbour
// does, a second for one that is not there: so each has a goroutine of its own
// meanwhile, and no lock. A handle holds the link-layer address that the neighbour had
// when it was made, so one that is older than [handleAge] is made anew when it is used.
type handles struct {
	c        *Control
	limit    int
	mu       sync.Mutex
	at       map[way]*handle
	first    *handle // most recently used
	last     *handle
	wanted   map[way][]unsent // messages that wait for a port which is sought
	retired  []*handle        // that sends may still use, in the order of their marks
	renewing int              // handles that are being made anew
	epoch    uint64           // counts calls of expire
}

// handleAge is how long messages may go to a link-layer address that the neighbour has no
// longer. Initiators repeat their messages for longer than that before they give up.
const handleAge = time.Second

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

	made     time.Time // or last tried in vain
	renewing bool
	gone     bool   // not in at any more
	mark     uint64 // of retired ones: sends that were posted before may use it
}

// unsent is a message that waits for its handle.
type unsent struct {
	to wire.ControlAddress
	m  wire.Message
}

func (s *handles) init(c *Control, limit int) {
	s.c, s.limit = c, limit
	s.at, s.wanted = make(map[way]*handle), make(map[way][]unsent)
}

// get returns the handle if there is one, in use until put.
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
	defer s.mu.Unlock()
	if h.users--; h.gone && h.users == 0 {
		s.retire(h)
	}
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
	for {
		s.mu.Lock()
		epoch := s.epoch
		s.mu.Unlock()
		h, err := s.make(at)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		if epoch == s.epoch {
			h.users = 1
			s.add(h)
			if len(s.at) > s.limit {
				s.evict()
			}
			s.mu.Unlock()
			return h, nil
		}
		s.mu.Unlock()
		if err := h.ah.Close(); err != nil {
			return nil, err
		}
	}
}

func (s *handles) make(at way) (*handle, error) {
	h := &handle{way: at, made: time.Now()}
	err := s.c.gid.attempt(func(gid verbs.GIDEntry) (err error) {
		h.ah, err = s.c.pd.CreateAH(verbs.AHAttr{GID: verbs.GID(at.gid), DLID: at.lid, SGIDIndex: gid.Index, Port: gid.Port, TrafficClass: s.c.cfg.TrafficClass})
		return err
	})
	return h, err
}

func (s *handles) add(h *handle) {
	s.at[h.way] = h
	s.link(h)
}

func (s *handles) remove(h *handle) {
	h.gone = true
	s.unlink(h)
	delete(s.at, h.way)
	if h.users == 0 {
		s.retire(h)
	}
}

// evict gives up the handle that was used longest ago.
func (s *handles) evict() {
	for h := s.last; h != nil; h = h.newer {
		if h.users == 0 {
			s.remove(h)
			break
		}
	}
}

// expire gives up all handles.
func (s *handles) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	for s.first != nil {
		s.remove(s.first)
	}
}

// age has a handle made anew that is in use, beside everything else, if it is old.
func (s *handles) age(h *handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.renewing || h.gone || s.renewing >= maxSought || time.Since(h.made) < handleAge {
		return
	}
	h.renewing = true
	s.renewing++
	s.c.work.Go(func() { s.renew(h) })
}

// renew replaces a handle. If the neighbour is not found, the handle stays.
func (s *handles) renew(h *handle) {
	next, err := s.make(h.way)
	s.mu.Lock()
	defer s.mu.Unlock()
	h.renewing = false
	s.renewing--
	switch {
	case err != nil:
		h.made = time.Now()
		s.c.log.Info("dc: address handle is old", "to", verbs.GID(h.way.gid), "err", err)
	case h.gone: // next may be out of date, too
		if err := next.ah.Close(); err != nil {
			s.c.log.Warn("dc: address handle", "err", err)
		}
	default:
		s.remove(h)
		s.add(next)
	}
}

// retire has a handle closed when the sends that may use it have completed.
func (s *handles) retire(h *handle) {
	h.mark = s.c.posted.Load()
	s.retired = append(s.retired, h)
	s.sweep()
}

// completed is called when sends have completed.
func (s *handles) completed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
}

func (s *handles) sweep() {
	for gone := s.c.gone.Load(); len(s.retired) > 0 && s.retired[0].mark <= gone; s.retired = s.retired[1:] {
		if err := s.retired[0].ah.Close(); err != nil {
			s.c.log.Warn("dc: address handle", "err", err)
		}
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
