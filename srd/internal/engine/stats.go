package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// PeerStats describe a peer.
type PeerStats struct {
	Addr        wire.Addr
	Established bool
	UnderWay    int // packets
	Window      int // that may be: as the network allows
	Grant       int // and the peer
	Paths       []PathStats
}

// PathStats describe a path to a peer that is not idle.
type PathStats struct {
	RoundTrip, MinRTT time.Duration // smoothed, and the shortest
	Loss              float64       // share of the last packets that was lost
	Sent              uint64        // packets
	UnderWay          int           // packets
	Suspect, Retired  bool          // out of use, and probed: for now, or until enough probes come back
}

// Peers calls f for each peer. f must not keep its argument.
func (e *Engine) Peers(f func(*PeerStats)) {
	var s PeerStats
	for _, p := range e.peers {
		if p.State == session.Vacant {
			continue
		}
		s = PeerStats{Addr: p.Addr, Established: p.State == session.Established, UnderWay: int(p.flying), Grant: int(p.grant), Paths: s.Paths[:0]}
		if n := p.net; n != nil {
			s.Window = int(n.window >> 8)
			for i := range n.paths[:e.cfg.Paths] {
				x := &n.paths[i]
				s.Paths = append(s.Paths, PathStats{RoundTrip: x.SRTT, MinRTT: x.least, Loss: float64(x.loss()) / (1 << 16), Sent: x.sent, UnderWay: int(x.flying), Suspect: x.suspect, Retired: x.retired})
			}
		}
		f(&s)
	}
}
