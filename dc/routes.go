package dc

import (
	"errors"
	"sync"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// routes are the address handles of requests to DCTs: one for each port that
// there are peers at.
type routes struct {
	pd     *verbs.PD
	gid    verbs.GIDEntry
	class  uint8
	mu     sync.Mutex
	at     map[way]*route
	closed bool
}

type route struct {
	at    way
	ah    *verbs.AH
	peers int
}

func (s *routes) init(pd *verbs.PD, gid verbs.GIDEntry, class uint8) {
	s.pd, s.gid, s.class, s.at = pd, gid, class, make(map[way]*route)
}

// get answers the way to a target; put gives it back. It may take as long as
// finding the neighbour does, and holds up nobody else meanwhile.
func (s *routes) get(a Address) (*route, error) {
	at := way{wire.GID(a.GID), a.LID}
	if r, err := s.use(at); r != nil || err != nil {
		return r, err
	}
	ah, err := s.pd.CreateAH(verbs.AHAttr{GID: a.GID, DLID: a.LID, SGIDIndex: s.gid.Index, Port: s.gid.Port, TrafficClass: s.class})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.at[at]; r != nil { // somebody else was faster
		r.peers++
		return r, ah.Close()
	}
	if s.closed {
		return nil, errors.Join(ErrClosed, ah.Close())
	}
	r := &route{at: at, ah: ah, peers: 1}
	s.at[at] = r
	return r, nil
}

func (s *routes) use(at way) (*route, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	r := s.at[at]
	if r != nil {
		r.peers++
	}
	return r, nil
}

func (s *routes) put(r *route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.peers--; r.peers > 0 || s.closed {
		return nil
	}
	delete(s.at, r.at)
	return r.ah.Close()
}

func (s *routes) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, r := range s.at {
		errs = append(errs, r.ah.Close())
	}
	s.at, s.closed = nil, true
	return errors.Join(errs...)
}
