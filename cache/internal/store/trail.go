package store

import "github.com/goverbs/goverbs/cache/internal/wire"

// A key that changes often has several tombstones in quarantine. All of the last ones lead to the
// record that is alive, and not each to the next: a client that is several changes behind needs one
// READ more, and not one for each of them.

const (
	trailLength = 1024 // tombstones that are remembered, whatever their keys
	maxLed      = 8    // of a key, beside the last one
)

// trail remembers where the last tombstones are that lead on. They are numbered from 1.
type trail struct {
	steps [trailLength]step
	last  uint64
}

// step is one tombstone.
type step struct {
	place  wire.Place
	seq    uint64 // the delta behind which its slot is in quarantine
	before uint64 // the number of the key's tombstone before it; 0: there is none
}

func (t *trail) add(s step) uint64 {
	t.last++
	t.steps[t.last%trailLength] = s
	return t.last
}

// at returns the step of a number, if that is still remembered.
func (t *trail) at(n uint64) (step, bool) {
	return t.steps[n%trailLength], n != 0 && t.last-n < trailLength
}

// lead makes the tombstones of a key, from number n back, say where the record is now. What has left
// quarantine is no tombstone any more. They are freed before the record's slot, so a client that may
// READ them may READ there, as with the last one.
func (s *Store) lead(n uint64, place wire.Place, version uint64) {
	for range maxLed {
		t, ok := s.trail.at(n)
		if !ok || t.seq <= s.released {
			return
		}
		wire.Forward(s.arena.Bytes(t.place), place, version)
		s.pause()
		n = t.before
	}
}

// leave ends the quarantine of what no client may READ any more.
func (s *Store) leave() {
	s.released = s.horizon()
	s.arena.Release(s.released)
}
