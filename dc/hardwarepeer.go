package dc

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// hardwarePeer is what an initiator knows of a DCT. Its [Peer] has nothing but
// the address and the number under which it is found.
type hardwarePeer struct {
	dciPeer
	to    verbs.Target
	route *route
	queue []Request // not yet posted
}

// find answers nil if the peer was forgotten, or is another initiator's.
func (h *hardware) find(p *Peer) *hardwarePeer {
	if int(p.number) < len(h.all) {
		if x := h.all[p.number]; x != nil && x.owner == p && !h.closed {
			return x
		}
	}
	return nil
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
	p := h.peers[peerName{a, accessKey}]
	if p == nil {
		p = &Peer{addr: a, key: accessKey}
		h.enter(p)
	}
	return p, nil
}

// peerName is by what a peer is found.
type peerName struct {
	addr Address
	key  uint64
}

func (p *Peer) name() peerName { return peerName{p.addr, p.key} }

// enter gives a peer a number.
func (h *hardware) enter(p *Peer) {
	if n := len(h.spare); n > 0 {
		p.number, h.spare = h.spare[n-1], h.spare[:n-1]
	} else {
		p.number = uint32(len(h.all))
		h.all = append(h.all, nil)
	}
	h.all[p.number] = &hardwarePeer{dciPeer: dciPeer{owner: p}, to: verbs.Target{QPN: p.addr.QPN, DCKey: dcKey(p.key, p.addr.Incarnation)}}
	h.peers[p.name()] = p
}

// attach is [Initiator.Attach].
func (h *hardware) attach(p *Peer) error {
	h.mu.Lock()
	_, err := h.reach(p)
	h.mu.Unlock()
	return opError("attach to", p.addr.String(), err)
}

// reach finds a peer and the way to it, for which it gives up mu for a while.
func (h *hardware) reach(p *Peer) (*hardwarePeer, error) {
	x := h.find(p)
	if x == nil {
		return nil, ErrClosed
	}
	if x.route != nil {
		return x, nil
	}
	h.mu.Unlock()
	r, err := h.routes.get(p.addr)
	h.mu.Lock()
	switch {
	case err != nil:
		return nil, err
	case h.find(p) != x:
		return nil, errors.Join(ErrClosed, h.routes.put(r))
	case x.route != nil: // somebody else was faster
		return x, h.routes.put(r)
	}
	x.route, x.to.AH = r, r.ah
	return x, nil
}

// idle is [Initiator.Detach].
func (h *hardware) idle(p *Peer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.unused(p)
	return opError("detach from", p.addr.String(), err)
}

// unused is a peer without requests.
func (h *hardware) unused(p *Peer) (*hardwarePeer, error) {
	x := h.find(p)
	switch {
	case x == nil:
		return nil, ErrClosed
	case x.outstanding+x.pending > 0:
		return nil, fmt.Errorf("%w: %d requests are under way", ErrInUse, x.outstanding+x.pending)
	}
	return x, nil
}

// forget is [Initiator.Forget].
func (h *hardware) forget(p *Peer) error {
	h.mu.Lock()
	x, err := h.unused(p)
	if err == nil {
		delete(h.peers, p.name())
		h.all[p.number] = nil
		h.spare = append(h.spare, p.number)
	}
	h.mu.Unlock()
	if err == nil && x.route != nil {
		err = h.routes.put(x.route)
	}
	return opError("forget", p.addr.String(), err)
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
