package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// peer is the state that an endpoint keeps of another one: this much, and the windows of its
// flows, while it is idle.
type peer struct {
	session.Peer
	welcomed  bool  // a Welcome was sent, and nothing came by the session since
	quarters  uint8 // of PeerTimeout that it has been silent for
	echo      bool  // is owed
	echoPath  uint8
	echoStamp uint32
	alone     bool  // the response that is owed has room in no packet with a part
	path      uint8 // of the last response
	turn      uint8 // the service of the flow that sent last
	grant     uint16

	flying uint32        // packets under way, of all flows
	longs  uint32        // of them, the long ones
	large  time.Duration // since when one is and none has arrived
	small  time.Duration // when something else was acknowledged first since then, or 0
	tx     [wire.Services]*txFlow
	rx     [wire.Services]*rxFlow
	net    *network
}

// find returns the peer with an address, and creates it if there is none.
func (e *Engine) find(a wire.Addr) *peer {
	if p := e.latest; p != nil && p.Addr == a { // a peer is forgotten only to reuse its slot for another
		return p
	}
	s := e.Find(a)
	if s == nil {
		return nil
	}
	e.latest = e.peers[s.Slot]
	return e.latest
}

func (e *Engine) makePeer(s session.Peer) *session.Peer {
	if int(s.Slot) == len(e.peers) {
		if len(e.chunk) == 0 {
			e.newChunk()
		}
		e.peers, e.chunk = append(e.peers, &e.chunk[0]), e.chunk[1:]
	}
	s.Fragment = uint16(min(e.fragment, smallFragment))
	p := e.peers[s.Slot]
	*p = peer{Peer: s, grant: uint16(e.cfg.First)}
	p.turn, p.path = uint8(e.Rng.Uint32()), uint8(e.Rng.Uint32())
	return &p.Peer
}

// chunkLength is the number of peers allocated at a time: with the allocator's header they
// fill 8 KiB.
const chunkLength = 31

// newChunk makes room for peers. It is written to at once: the first message to or from a
// peer does not wait for the kernel to find its memory.
func (e *Engine) newChunk() {
	e.chunk = make([]peer, chunkLength)
	for i := range e.chunk {
		e.chunk[i].State = session.Vacant
	}
}

func (e *Engine) peerUnsettled(s *session.Peer) bool { return e.unsettled(e.peers[s.Slot]) }

// forget frees what is kept of a peer.
func (e *Engine) forget(s *session.Peer) {
	p := e.peers[s.Slot]
	e.dropReceived(p)
	e.leave(p)
	e.releaseNetwork(p)
}
