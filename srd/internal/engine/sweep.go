package engine

import "time"

// Sweep is the search for a peer to be forgotten. Few are looked at each time, since many
// strangers may come; all of them now and then, since few may be silent for long.
type Sweep struct {
	at   int
	next time.Duration // when all are looked at again
}

const (
	sweepFew   = 64
	sweepShare = 64 // of EvictAge, between two looks at all peers
)

// Find answers the next of n peers that is idle for long, as idle tells.
func (s *Sweep) Find(n int, now, evictAge time.Duration, idle func(i int) bool) (i int, ok bool) {
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
