package srd

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
)

// Stats count what an endpoint did. On EFA timeouts are packets that the device gave up,
// and probes are greetings by which a silent peer is asked whether it lives.
type Stats struct {
	Sent, Received      uint64 // packets
	Retransmitted       uint64
	Timeouts, Probes    uint64
	Responses           uint64 // that went alone, not with a message
	Duplicates, Beyond  uint64 // packets that had arrived before, or were past the window
	Delivered, Refused  uint64 // messages that arrived
	Sessions, Forgotten uint64 // peers
	Retired, Revived    uint64 // paths
	Broken              uint64 // queue pairs that the device gave up, with what was in them

	// What strangers sent, or peers of the past: malformed packets, wrong tokens,
	// sources and cookies, old epochs, what no peer would say; and the answers to
	// them, with those that were left out since there were too many.
	Malformed, WrongToken, WrongSource, WrongCookie uint64
	OldEpoch, Bogus                                 uint64
	Resets, Challenges, Unanswered                  uint64
}

// Stats answers the counters so far.
func (ep *Endpoint) Stats() Stats {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return Stats(*ep.e.Count())
}

// PeerStats tell of a peer.
type PeerStats struct {
	Addr        Addr `json:"-"`
	Established bool
	UnderWay    int // packets that were sent and not answered
	Window      int // how many may be, as the network allows; 0 while it is idle
	Grant       int // and as the peer allows
	Paths       []PathStats
}

// PathStats tell of a path to a peer that is not idle.
type PathStats struct {
	RoundTrip, Least time.Duration // smoothed, and the shortest
	Loss             float64       // share of the last packets
	Sent             uint64
	UnderWay         int
	Suspect, Retired bool // out of use, and probed; the latter for long
}

// Peers answers what is known of all peers. It allocates.
func (ep *Endpoint) Peers() []PeerStats {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	var all []PeerStats
	ep.e.Peers(func(s *engine.PeerStats) {
		p := PeerStats{Addr: addrOf(s.Addr), Established: s.Established, UnderWay: s.UnderWay, Window: s.Window, Grant: s.Grant}
		for _, x := range s.Paths {
			p.Paths = append(p.Paths, PathStats(x))
		}
		all = append(all, p)
	})
	return all
}
