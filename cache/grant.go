package cache

import (
	"errors"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// A server of a cluster has its records for itself until a deadline, and then other servers take them over, even
// if its device still responds to READs. Its grants tell clients of the deadline. Clients ask for them while they READ.

// longestGrant is in ms of the server's clock: the longest TTL of a cluster, and a second.
const longestGrant = 61_000

// errOtherLife says that the server is another member of its cluster than when the session began.
var errOtherLife = errors.New("the server has joined its cluster anew")

// holds reports whether what a READ has found counts, or a copy. The time now is after the completion of the READ: the
// server has executed it before its deadline. mu must be held.
func (s *session) holds(now int64) bool { return !s.placed || s.isGranted(now) }

// isGranted is holds of a server of a cluster. mu must be held.
func (s *session) isGranted(now int64) bool {
	ok, due := s.m.Granted(now)
	if due && s.granter == 0 {
		s.askGrant()
	}
	if !ok {
		s.c.count.ungranted.Add(1)
	}
	return ok
}

// askGrant asks for a grant. The reply has no waiter. mu must be held.
func (s *session) askGrant() {
	s.last++
	s.granter = s.last
	s.calls[s.last] = &call{id: s.last, begun: s.elapsed(), done: make(chan error, 1)}
	s.out = wire.AppendRequest(s.out, &wire.Request{ID: s.last, Epoch: s.m.Epoch(), Request: kv.Request{Op: wire.OpGrant}})
	s.signal()
	s.c.count.grants.Add(1)
}

// granted takes the reply to askGrant. mu must be held.
func (s *session) granted(a *wire.Reply) error {
	s.granter = 0
	switch a.Status {
	case kv.OK:
		if a.Number > a.Clock && a.Number-a.Clock > longestGrant {
			return wire.Malformed
		}
		s.m.Grant(a.Number, a.Clock)
	case wire.WrongEpoch:
		return errOtherLife
	default: // it owns nothing now
		s.m.Grant(0, a.Clock)
	}
	return nil
}
