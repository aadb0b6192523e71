package own

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// round is the request for promises that a server has sent to all other members.
type round struct {
	sent time.Duration
	left map[place.Life]bool // members that have not promised yet
}

// Silent reports whether etcd has replied to no beat for the time of two, so that the server asks for promises.
func (s *Server) Silent(now time.Duration) bool {
	return s.number != 0 && now-s.lastBeat > 2*s.cfg.Beat()
}

// Ask begins a round of promises and ends the last one. The caller sends the epoch of the placement to all
// other members. While a transaction of the server may add a member that it does not know of, there is
// no round and members is nil.
func (s *Server) Ask(now time.Duration) (epoch uint32, members []place.Life) {
	s.round = round{}
	if s.mayEnd(s.life) {
		return s.placement.Epoch, nil
	}
	s.round = round{now, make(map[place.Life]bool)}
	for m := range s.placement.Members() {
		if m.Life != s.life {
			members = append(members, m.Life)
			s.round.left[m.Life] = true
		}
	}
	s.extend()
	return s.placement.Epoch, members
}

// Promise reports whether a life promises a member not to take over its shards for [Config.Wait]. The member
// knows the placement of an epoch. A life that knows a newer placement does not promise, and the
// caller sends that placement instead. Nor does a life that may have taken the shards over, or added a member.
// Nothing is promised to a life that is no member of the placement of that epoch.
func (s *Server) Promise(life, to place.Life, epoch uint32, now time.Duration) bool {
	if life != s.life || s.placement == nil || epoch < s.placement.Epoch || s.mayEnd(to) {
		return false
	}
	if epoch == s.placement.Epoch && s.placement.Number(to) == 0 {
		return false
	}
	if _, known := s.promised[to]; !known && len(s.promised) > place.MaxServers {
		return false
	}
	s.promised[to] = max(s.promised[to], now+s.cfg.Wait())
	return true
}

// Promised takes the promise of a member that was asked at a time. The promises of all extend the deadline.
func (s *Server) Promised(by place.Life, sent time.Duration) {
	if s.round.sent == sent {
		delete(s.round.left, by)
		s.extend()
	}
}

// extend extends the deadline if all members of the round have promised.
func (s *Server) extend() {
	if len(s.round.left) == 0 {
		s.deadline = max(s.deadline, s.round.sent+s.cfg.Lease())
	}
}
