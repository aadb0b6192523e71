package cache

import (
	"errors"
	"time"
)

// A member of a cluster that hangs has its shards for a TTL at most, and what it has not replied to by then it does not
// execute later. So a session with a member ends that is silent while calls wait. A server that is no member has
// its records for as long as it hangs, and its clients go on to READ them.

// A member is hung if it sends nothing for so many looks in a row, at each of which a call waits.
const (
	hungAfter = 10 * time.Second
	hungLooks = 4
	hungLook  = hungAfter / hungLooks
)

var errHung = errors.New("the server sends nothing, and a call has waited for 10 seconds")

// hung judges at each look whether a member is hung.
type hung struct{ looks int }

// look takes whether the member has sent something since the last look, and whether a call waits. If ask is set the
// client has to send what a member replies to at once: the call may be a flush, which takes a lease.
func (h *hung) look(heard, waits bool) (ask, over bool) {
	if h.looks++; heard || !waits {
		h.looks = 0
	}
	return h.looks == 1, h.looks > hungLooks
}

// watchMember begins to look whether a member is hung. mu must be held.
func (s *session) watchMember() { s.watch = time.AfterFunc(hungLook, s.lookAtMember) }

func (s *session) lookAtMember() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Load() {
		return
	}
	ask, over := s.quiet.look(s.heard.Swap(false), len(s.calls) > 0)
	switch {
	case over:
		s.endNow(errHung)
		return
	case ask && s.granter == 0:
		s.askGrant()
	}
	s.watch.Reset(hungLook)
}
