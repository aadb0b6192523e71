package cluster

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache/internal/own"
)

// sighting is a revision of a key, and when it was first seen.
type sighting struct {
	revision int64
	at       time.Duration
}

// otherTTL returns an error while a member with another TTL may be alive. mu must be held.
func (m *Member) otherTTL(v *view) error {
	for s := range v.Placement.Members() {
		ttl, ok := v.ttls[s.Life]
		if !ok || ttl == m.cfg.TTL {
			continue
		}
		first, known := m.seen[s.Life]
		if !known {
			first = sighting{v.Beats[s.Life], m.now()}
			m.seen[s.Life] = first
		}
		switch {
		case first.revision != v.Beats[s.Life]:
			return fmt.Errorf("cluster: %w: %s has %v", ErrTTL, s.ID, ttl)
		case m.now()-first.at <= own.Config{TTL: ttl}.Wait():
			return fmt.Errorf("cluster: %s has had a TTL of %v, and may be alive", s.ID, ttl)
		}
	}
	return nil
}

// twin returns an error if another life of this server goes on, and this one is no member yet. A life that is one ends
// only with its place: the other one beats until it finds this one's beats. mu must be held.
func (m *Member) twin(v *view) error {
	const late = 2 // beats that a life has sent before it ended
	if m.own.Number() != 0 {
		return nil
	}
	for l, revision := range v.Beats {
		if before, known := m.beats[l]; known && l.ID == m.self.ID && l != m.self.Life && revision > before {
			if m.former++; m.former > late {
				return fmt.Errorf("cluster: %w: %s", ErrTaken, l.ID)
			}
		}
	}
	return nil
}
