package own

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// transaction is one that ends a life or adds a member, and has no known outcome. It may
// be executed as long as what it compares is so: the known placement, and the revision of the key of the
// life that it ends.
type transaction struct {
	ends     place.Life // zero: it adds a member
	revision int64
}

// Dead returns a member that is dead, so that its shards may be taken over, and the revision of its key, which the transaction
// has to compare besides the placement. The caller calls Sending before it sends that transaction.
//
// A member takes over nothing for a time after it has joined: a member that does not know of it yet may have
// the promises of all others. The next life of a member may take the place of its last life, which it does
// after the same time: the promises of its last life have ended then.
func (s *Server) Dead(now time.Duration) (life place.Life, revision int64, ok bool) {
	if s.placement == nil || s.gone || now-s.since < s.cfg.Wait() {
		return place.Life{}, 0, false
	}
	for m := range s.placement.Members() {
		if m.Life == s.life || s.number == 0 && m.ID != s.life.ID || now < s.promised[m.Life] {
			continue
		}
		if o, known := s.beats[m.Life]; known && now-o.at > s.cfg.Wait() {
			return m.Life, o.revision, true
		}
	}
	return place.Life{}, 0, false
}

// Due returns the time from which the next member is dead unless it beats before, and 0 if there is none that is not dead
// already.
func (s *Server) Due(now time.Duration) (at time.Duration) {
	for life, o := range s.beats {
		due := max(o.at, s.since) + s.cfg.Wait()
		if due = max(due, s.promised[life]); life != s.life && due > now && (at == 0 || due < at) {
			at = due
		}
	}
	return at
}

// Hears reports whether a member is not known to be dead.
func (s *Server) Hears(life place.Life, now time.Duration) bool {
	o, known := s.beats[life]
	return known && now-o.at <= s.cfg.Wait()
}

// Joining returns a life of a view that may become a member. The transaction has to compare the placement; the
// caller calls Sending before it sends it.
func (s *Server) Joining(v View) (life place.Life, ok bool) {
	if s.number == 0 {
		return place.Life{}, false
	}
	for l := range v.Beats {
		if s.placement.CanJoin(l) && (!ok || l.ID < life.ID || l.ID == life.ID && l.Boot > life.Boot) {
			life, ok = l, true
		}
	}
	return life, ok
}

// Sending notes that a transaction is sent that ends a life while its key has the revision, or that adds a
// member if life is zero.
func (s *Server) Sending(life place.Life, revision int64) {
	s.pending = append(s.pending, transaction{life, revision})
}

// Failed notes that a transaction was not executed, and cannot be any more: what it compares has changed.
func (s *Server) Failed(life place.Life, revision int64) {
	s.pending = slices.DeleteFunc(s.pending, func(t transaction) bool { return t == transaction{life, revision} })
}

// settle forgets transactions that cannot be executed any more, since a key has changed that they compare.
func (s *Server) settle(v View) {
	left := s.pending[:0]
	for _, t := range s.pending {
		if v.Beats[t.ends] <= t.revision {
			left = append(left, t)
		}
	}
	s.pending = left
}

// mayEnd reports whether a transaction may be executed that ends a life, or that adds a member.
func (s *Server) mayEnd(life place.Life) bool {
	for _, t := range s.pending {
		if t.ends == life || t.ends == (place.Life{}) {
			return true
		}
	}
	return false
}
