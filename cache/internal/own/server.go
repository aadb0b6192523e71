package own

import (
	"maps"
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// Drift is the bound on clocks in use: 1/1024 is far more than crystals differ by.
const Drift = 1024

// Config has what all servers and clients of a cluster agree on.
type Config struct {
	// TTL is the time without a beat after which a server's shards are taken over.
	TTL time.Duration
	// Drift is the inverse of the greatest difference of the rates of two clocks: the constant of that name,
	// or less in simulations.
	Drift int64
}

// Beat returns the time between two beats.
func (c Config) Beat() time.Duration { return c.TTL / 6 }

// Lease returns the time by which a beat or a round of promises extends the deadline. It is shorter than the TTL
// by more than clocks differ in that time.
func (c Config) Lease() time.Duration { return c.TTL - 2*c.TTL/time.Duration(c.Drift) }

// Wait returns the time for which a key has to be unchanged before its server's shards are taken over. It is longer
// than the TTL by the time for which the clocks of the owner and of a client may stand still.
func (c Config) Wait() time.Duration { return c.TTL + c.TTL/10 }

// Grace returns the time that the members have to beat after one in which this server heard of none. It is longer than the
// two requests that one member of etcd after the other may leave without a reply, and so short that an election of etcd is
// over and a takeover done within two TTLs.
func (c Config) Grace() time.Duration { return 4 * c.Beat() }

// Server is the state of one life of a server. Times are those of its own clock.
type Server struct {
	cfg  Config
	life place.Life

	placement *place.Placement // the one with the highest epoch so far
	number    uint8            // in it; 0: no member
	since     time.Duration    // when it joined, or else began
	gone      bool             // it was a member, and is not any more
	deadline  time.Duration    // it owns its shards before that

	lastBeat time.Duration // when the last beat that has a reply was sent
	beats    map[place.Life]observed

	promised map[place.Life]time.Duration // until then it does not take over the shards of a member
	pending  []transaction
	round    round

	shards  []shard
	version uint32 // of what the server does with its shards
}

// NewServer returns the machine of a life that begins now. It knows no placement.
func NewServer(cfg Config, life place.Life, now time.Duration) *Server {
	return &Server{cfg: cfg, life: life, since: now, lastBeat: now, promised: make(map[place.Life]time.Duration)}
}

// Placement returns the placement with the highest epoch so far, or nil.
func (s *Server) Placement() *place.Placement { return s.placement }

// Number returns the number of the server in the placement, or 0 if it is no member.
func (s *Server) Number() uint8 { return s.number }

// Version returns a number that rises when the server opens, closes or loses shards.
func (s *Server) Version() uint32 { return s.version }

// Deadline returns the time from which the server owns nothing.
func (s *Server) Deadline() time.Duration { return s.deadline }

// Gone reports whether the life has been a member and is not any more. It cannot join again: the
// next life has to begin.
func (s *Server) Gone() bool { return s.gone }

// Learn takes a placement that etcd has or had, from any source. It ignores one that is not newer
// than the known one, since messages overtake each other. It returns the shards that the server has
// lost: their records have to be deleted before the server opens them again.
func (s *Server) Learn(p *place.Placement, now time.Duration) (lost []int) {
	if s.placement != nil && p.Epoch <= s.placement.Epoch {
		return nil
	}
	s.placement = p
	s.pending = nil
	s.join(now)
	if s.shards == nil {
		s.shards = make([]shard, len(p.Shards))
	}
	for i := range s.shards {
		if s.assign(i, p.Shards[i]) {
			lost = append(lost, i)
		}
	}
	maps.DeleteFunc(s.promised, func(life place.Life, _ time.Duration) bool { return p.Number(life) == 0 })
	return lost
}

// join notes whether the server is a member.
func (s *Server) join(now time.Duration) {
	was := s.number
	s.number = s.placement.Number(s.life)
	switch {
	case was == 0 && s.number != 0:
		s.since = now
	case was != 0 && s.number == 0, s.placement.Ended(s.life): // which one that is full may not list
		s.gone = true
	}
}
