package own

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// View is what one transaction reads, all of it at one moment: the placement, which is not nil, and the
// revisions of the lives' keys.
type View struct {
	Placement *place.Placement
	Beats     map[place.Life]int64
}

// observed is the last revision of a member's key, and when the first reply came that had it.
type observed struct {
	revision int64
	at       time.Duration
}

// Observe takes the view of a beat, or of another transaction that has written the key of this life:
// it was sent at one time, and its reply came at another. It ignores a view with an older placement
// than the known one. It returns the shards that the server has lost, as [Server.Learn] does.
func (s *Server) Observe(v View, sent, now time.Duration) (lost []int) {
	if s.placement != nil && v.Placement.Epoch < s.placement.Epoch {
		return nil
	}
	lost = s.Learn(v.Placement, now)
	s.excuse(sent-s.lastBeat, now)
	s.lastBeat = max(s.lastBeat, sent)
	s.settle(v)
	s.note(v, now)
	if s.number != 0 {
		s.deadline = max(s.deadline, sent+s.cfg.Lease())
	}
	return lost
}

// Saw takes the revision of a key that etcd has told of by itself: the reply of a beat may have it much later.
func (s *Server) Saw(life place.Life, revision int64, now time.Duration) {
	if o, known := s.beats[life]; known && revision > o.revision {
		s.beats[life] = observed{revision, now}
	}
}

// excuse leaves out of the members' silence what this server could not hear itself: of a time without a reply that is longer
// than two beats, all but one beat, but no more than gives the members [Config.Grace] from now on. After an outage of
// all members the first one to beat waits for the others.
func (s *Server) excuse(gap, now time.Duration) {
	if gap <= 2*s.cfg.Beat() {
		return
	}
	for life, o := range s.beats {
		grace := now - s.cfg.Wait() + s.cfg.Grace()
		o.at = max(o.at, min(o.at+gap-s.cfg.Beat(), grace))
		s.beats[life] = o
	}
}

// note notes the revisions of the members' keys. A key that is gone has none, which is no beat.
func (s *Server) note(v View, now time.Duration) {
	beats := make(map[place.Life]observed)
	for m := range s.placement.Members() {
		o, known := s.beats[m.Life]
		switch revision := v.Beats[m.Life]; {
		case !known || revision > o.revision:
			o = observed{revision, now}
		case revision == 0:
			o.revision = 0
		}
		beats[m.Life] = o
	}
	s.beats = beats
}
