package dc

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// routes are the address handles of requests to DCTs: one for each port that
// there are peers at.
type routes struct {
	pd     *verbs.PD
	gid    localGID
	class  uint8
	mu     sync.Mutex
	at     map[way]*route
	all    map[*route]bool // stale ones included
	closed bool
}

type route struct {
	at    way
	ah    *verbs.AH
	peers int
	// stale: the address of this end may have changed since, or the neighbour's. Peers
	// leave it for another one when none of their requests is under way.
	stale atomic.Bool
}

func (s *routes) init(pd *verbs.PD, gid verbs.GIDEntry, class uint8) error {
	s.pd, s.class, s.at, s.all = pd, class, make(map[way]*route), make(map[*route]bool)
	return s.gid.init(pd.Device(), gid, s.expire)
}

// get returns the way to a target; put gives it back. It may take as long as
// finding the neighbour does, and blocks no other goroutine meanwhile.
func (s *routes) get(a Address) (*route, error) {
	at := way{wire.GID(a.GID), a.LID}
	if r, err := s.use(at); r != nil || err != nil {
		return r, err
	}
	r := &route{at: at, peers: 1}
	used := s.gid.entry()
	err := s.gid.attempt(func(gid verbs.GIDEntry) (err error) {
		used = gid
		r.ah, err = s.pd.CreateAH(verbs.AHAttr{GID: a.GID, DLID: a.LID, SGIDIndex: gid.Index, Port: gid.Port, TrafficClass: s.class})
		return err
	})
	if err != nil {
		return nil, err
	}
	ah := r.ah
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.at[at]; r != nil { // another goroutine was faster
		r.peers++
		return r, ah.Close()
	}
	if s.closed {
		return nil, errors.Join(ErrClosed, ah.Close())
	}
	s.all[r] = true
	if used.Index != s.gid.entry().Index {
		r.stale.Store(true)
	} else {
		s.at[at] = r
	}
	return r, nil
}

// expire makes all routes stale.
func (s *routes) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.at {
		r.stale.Store(true)
	}
	clear(s.at)
}

// doubt makes one route stale.
func (s *routes) doubt(r *route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.stale.Store(true)
	if s.at[r.at] == r {
		delete(s.at, r.at)
	}
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
	delete(s.all, r)
	if s.at[r.at] == r {
		delete(s.at, r.at)
	}
	return r.ah.Close()
}

func (s *routes) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for r := range s.all {
		errs = append(errs, r.ah.Close())
	}
	s.at, s.all, s.closed = nil, nil, true
	return errors.Join(errs...)
}
