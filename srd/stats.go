package srd

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
)

// Stats are the counters of an endpoint. On EFA, Timeouts are packets that the device gave
// up, and Probes are greetings that check whether a silent peer still runs.
type Stats struct {
	Sent, Received      uint64 // packets
	Retransmitted       uint64 // packets
	Timeouts, Probes    uint64
	Responses           uint64 // that were sent alone, not with a message
	Duplicates, Beyond  uint64 // packets that had arrived before, or found no memory and come again
	Delivered, Refused  uint64 // messages that arrived
	Sessions, Forgotten uint64 // peers
	Retired, Revived    uint64 // paths
	Broken              uint64 // queue pairs that the device gave up, with what was in them

	// Packets of unauthenticated peers or former peers: malformed ones, and those with wrong
	// tokens, sources, cookies or keys.
	Malformed, WrongToken, WrongSource, WrongCookie, WrongKey uint64
	OldEpoch, Bogus                                           uint64 // of theirs: of old epochs, and with contents that no peer sends
	Resets, Challenges, Unanswered                            uint64 // replies to them, and replies not sent since there were too many
}

// Stats returns the counters so far.
func (ep *Endpoint) Stats() Stats {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return Stats(*ep.e.Count())
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

// PathStats describe a path to a peer that is not idle.
type PathStats struct {
	RoundTrip, MinRTT time.Duration // smoothed, and the shortest
	Loss              float64       // share of the last packets that was lost
	Sent              uint64        // packets
	UnderWay          int           // packets
	Suspect, Retired  bool          // out of use, and probed: for now, or until enough probes come back
}

// Peers returns the statistics of all peers. It allocates.
func (ep *Endpoint) Peers() []PeerStats {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	var all []PeerStats
	ep.e.Peers(func(s *engine.PeerStats) {
		p := PeerStats{addrOf(s.Addr), s.Established, s.UnderWay, s.Window, s.Grant, nil}
		for _, path := range s.Paths {
			p.Paths = append(p.Paths, PathStats(path))
		}
		all = append(all, p)
	})
	return all
}
