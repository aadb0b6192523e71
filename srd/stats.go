package srd

import (
	"slices"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
)

// Stats are the counters of an endpoint. On EFA, Timeouts are packets that the device gave
// up, and Probes are greetings that check whether a silent peer still runs. Fields: go doc srd/internal/session.Stats.
type Stats = session.Stats

// PathStats describe a path to a peer that is not idle: go doc srd/internal/engine.PathStats.
type PathStats = engine.PathStats

// Stats returns the counters so far.
func (ep *Endpoint) Stats() Stats {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return *ep.e.Count()
}

// PeerStats describe a peer.
type PeerStats struct {
	Addr        Addr `json:"-"`
	Established bool
	UnderWay    int // packets sent and not acknowledged
	Window      int // how many the network allows; 0 while the peer is idle
	Grant       int // how many the peer allows
	Paths       []PathStats
}

// Peers returns the statistics of all peers. It allocates.
func (ep *Endpoint) Peers() []PeerStats {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	var all []PeerStats
	ep.e.Peers(func(s *engine.PeerStats) {
		all = append(all, PeerStats{addrOf(s.Addr), s.Established, s.UnderWay, s.Window, s.Grant, slices.Clone(s.Paths)})
	})
	return all
}
