package hosts

import "time"

// sweep is the search for a peer to be forgotten. It looks at few peers each time, since many
// strangers may come; at all of them now and then, since few may be silent for long.
type sweep struct {
	at   uint32
	next time.Duration // when all are looked at again
}

const (
	sweepFew   = 64
	sweepShare = 64 // of EvictAge, between two looks at all peers
)

// find returns the next of n slots that has an idle peer.
func (s *sweep) find(n uint32, now, evictAge time.Duration, idle func(slot uint32) bool) (slot uint32, ok bool) {
	for looks := range n {
		if looks == sweepFew {
			if now < s.next {
				break
			}
			s.next = now + evictAge/sweepShare
		}
		if s.at = (s.at + 1) % n; idle(s.at) {
			return s.at, true
		}
	}
	return 0, false
}
