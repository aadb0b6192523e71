package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// PeerStats and PathStats are those of package srd, which says what the fields are.
type PeerStats struct {
	Addr                    wire.Addr
	Established             bool
	UnderWay, Window, Grant int
	Paths                   []PathStats
}

type PathStats struct {
	RoundTrip, MinRTT time.Duration
	Loss              float64
	Sent              uint64
	UnderWay          int
	Suspect, Retired  bool
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
