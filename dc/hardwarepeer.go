package dc

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// hardwarePeer is what [Peer] has of a DCT.
type hardwarePeer struct {
	dciPeer
	to    verbs.Target
	route *route
	queue []Request // not yet posted
	gone  bool
}

// arrive takes a way to the target, unless somebody else was faster.
func (x *hardwarePeer) arrive(r *route, all *routes) {
	if x.route != nil || x.gone {
		all.put(r)
		return
	}
	x.route, x.to.AH = r, r.ah
}

// dcKey is what a DCT has for its access key. It takes part of the address, so
// that a request for an earlier target of the same number is refused.
func dcKey(accessKey, incarnation uint64) uint64 { return accessKey ^ incarnation }

// resolve is [Initiator.Resolve].
func (h *hardware) resolve(a Address, accessKey uint64) (*Peer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, opError("resolve", a.String(), ErrClosed)
	case !a.Hardware:
		return nil, opError("resolve", a.String(), errors.Join(verbs.ErrUnsupported,
			errors.New("a target of the software back end needs an initiator of that back end")))
	case a.MTU != h.mtu:
		return nil, opError("resolve", a.String(), fmt.Errorf("%w: the target's MTU is %d bytes, this end's %d", verbs.ErrAttributes, a.MTU.Bytes(), h.mtu.Bytes()))
	}
	p := h.peers[a]
	if p == nil {
		p = &Peer{addr: a, hw: &hardwarePeer{to: verbs.Target{QPN: a.QPN}}}
		p.hw.owner = p
		h.peers[a] = p
	}
	p.hw.to.DCKey = dcKey(accessKey, a.Incarnation)
	return p, nil
}

// attach is [Initiator.Attach].
func (h *hardware) attach(p *Peer) error {
	h.mu.Lock()
	err := h.reach(p)
	h.mu.Unlock()
	return opError("attach to", p.addr.String(), err)
}

// reach finds the way to a target, for which it gives up mu for a while. The
// target may be used if there is no error.
func (h *hardware) reach(p *Peer) error {
	x := p.hw
	if x == nil {
		return fmt.Errorf("%w: a peer of another initiator", verbs.ErrAttributes)
	}
	if x.to.AH == nil && !x.gone && !h.closed {
		h.mu.Unlock()
		r, err := h.routes.get(p.addr)
		h.mu.Lock()
		if err != nil {
			return err
		}
		x.arrive(r, &h.routes)
	}
	if x.gone || h.closed {
		return ErrClosed
	}
	return nil
}

// idle is [Initiator.Detach].
func (h *hardware) idle(p *Peer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return opError("detach from", p.addr.String(), h.unused(p))
}

func (h *hardware) unused(p *Peer) error {
	switch x := p.hw; {
	case h.closed || x == nil || x.gone:
		return ErrClosed
	case x.outstanding+x.pending > 0:
		return fmt.Errorf("%w: %d requests are under way", ErrInUse, x.outstanding+x.pending)
	}
	return nil
}

// forget is [Initiator.Forget].
func (h *hardware) forget(p *Peer) error {
	r, err := h.detach(p)
	if err == nil && r != nil {
		err = h.routes.put(r)
	}
	return opError("forget", p.addr.String(), err)
}

func (h *hardware) detach(p *Peer) (*route, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.unused(p); err != nil {
		return nil, err
	}
	x := p.hw
	x.gone = true
	delete(h.peers, p.addr)
	r := x.route
	x.route, x.to.AH = nil, nil
	return r, nil
}

// routes are the address handles: one for each port that there are peers at.
type routes struct {
	pd  *verbs.PD
	gid verbs.GIDEntry
	mu  sync.Mutex
	at  map[place]*route
}

type route struct {
	at    place
	ah    *verbs.AH
	peers int
}

func (s *routes) init(pd *verbs.PD, gid verbs.GIDEntry) {
	s.pd, s.gid, s.at = pd, gid, make(map[place]*route)
}

// get answers the way to a target; put gives it back. It may take as long as
// finding the neighbour does.
func (s *routes) get(a Address) (*route, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		return nil, ErrClosed
	}
	at := place{gid: a.GID, lid: a.LID}
	r := s.at[at]
	if r == nil {
		ah, err := s.pd.CreateAH(verbs.AHAttr{GID: a.GID, DLID: a.LID, SGIDIndex: s.gid.Index, Port: s.gid.Port})
		if err != nil {
			return nil, err
		}
		r = &route{at: at, ah: ah}
		s.at[at] = r
	}
	r.peers++
	return r, nil
}

func (s *routes) put(r *route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.peers--; r.peers > 0 {
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
	s.at = nil
	return errors.Join(errs...)
}
