package lockoffload

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

const (
	watchesPerLease = 8
	firstHeartbeat  = time.Minute
	// strayLeases is in how many leases the watch looks at each slot for what nobody
	// should have left: all words of readers cost more than those of tickets.
	strayLeases = 16
)

// watch looks at heartbeats, and at the slots, of which it sees an eighth each time,
// until the context ends.
func (s *Server) watch(ctx context.Context) {
	defer close(s.gone)
	tick := time.NewTicker(max(s.cfg.Lease/watchesPerLease, time.Millisecond))
	defer tick.Stop()
	tickets := machine.NewTicketWatch(&s.l, s.cfg.Region.mr.Bytes(), s.cfg.Lease)
	for round := 0; ; round++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		part := round % watchesPerLease
		turn := round / watchesPerLease % strayLeases
		// One that fails, for one session perhaps, does not keep the others waiting.
		if s.cfg.PD.Device().Removed() {
			s.noted(errors.Join(errRemoved, s.finish(s.over())))
			continue
		}
		s.noted(errors.Join(
			s.finish(s.over()),
			s.watchSlots(time.Now(), turn, tickets, s.l.Slots*part/watchesPerLease, s.l.Slots*(part+1)/watchesPerLease),
			s.watchQueues(tickets),
		))
	}
}

// over are the sessions that are to end.
func (s *Server) over() (over []*Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		if !one.closing {
			switch one.lease.Look(s.heartbeat(one), time.Now()) {
			case machine.LeaseLeft:
				one.closing = true
			case machine.LeaseOver:
				one.closing, one.expired = true, true
			}
		}
		if one.closing {
			over = append(over, one)
		}
	}
	return over
}

// heartbeat is the word of a session's client.
func (s *Server) heartbeat(one *Session) uint64 {
	return memory.LoadWord(s.cfg.Region.mr.Bytes(), s.l.BeatOff(one.invite.Owner))
}

// watchSlots looks at tickets, and, in its turn, for what no session has that lives:
// nobody should have left it, but it would stay for ever.
func (s *Server) watchSlots(now time.Time, turn int, watch *machine.TicketWatch, from, to int) error {
	region := s.cfg.Region.mr.Bytes()
	lives := s.lives()
	first := (from+strayLeases-1-turn)/strayLeases*strayLeases + turn
	for slot := first; slot < to; slot += strayLeases {
		if s.stray(region, slot, lives) {
			if err := s.takeStray(region, slot); err != nil {
				return err
			}
		}
	}
	for slot := watch.Queue(from, to); slot < to; slot = watch.Queue(slot+1, to) {
		if err := s.help(now, slot, watch); err != nil {
			return err
		}
	}
	return nil
}

// watchQueues looks at the queues of tickets, wherever they are, in which a ticket is not
// signed, or in which sessions that ended may have left one.
func (s *Server) watchQueues(watch *machine.TicketWatch) error {
	s.mu.Lock()
	ended := s.queues
	s.queues = nil
	s.mu.Unlock()
	for _, e := range ended {
		for _, q := range e.queues {
			watch.Note(e.at, q.Slot, q.Next)
		}
	}
	now := time.Now()
	for slot := range watch.Drawn {
		if err := s.help(now, slot, watch); err != nil {
			return err
		}
	}
	return nil
}

// help does what is to be done about a slot's tickets. Tickets that are marked, and no
// others, come one after the other.
func (s *Server) help(now time.Time, slot int, watch *machine.TicketWatch) error {
	for range 2 * s.l.Clients {
		m := watch.Look(now, slot, s.living)
		if m == nil {
			return nil
		}
		s.ending.Lock()
		err := s.drive(m)
		s.ending.Unlock()
		if err != nil {
			return err
		}
		if m, ok := m.(*machine.Marker); ok {
			s.mu.Lock()
			s.counts.Skipped += uint64(watch.Count(m))
			s.mu.Unlock()
		}
	}
	return nil
}

// stray tells whether a slot seems to have something of a session that is gone.
func (s *Server) stray(region []byte, slot int, lives []uint64) bool {
	if tag := memory.LoadWord(region, s.l.LockOff(slot)); tag != 0 && tag>>48 != memory.AgentOwner && !s.living(tag) {
		return true
	}
	for i, bits := range lives {
		if memory.LoadWord(region, s.l.ReadersOff(slot)+8*i)&^bits != 0 {
			return true
		}
	}
	return false
}

// takeStray looks again while nobody comes or goes, and takes back what is there.
func (s *Server) takeStray(region []byte, slot int) error {
	s.ending.Lock()
	defer s.ending.Unlock()
	m := &machine.Recovery{Region: region, Slot: slot, End: slot + 1, Readers: s.lives()}
	m.Dead = func(identity uint64) bool {
		return identity>>16 != memory.AgentOwner && identity != memory.SkipMark(0)>>32 && !s.living(identity<<32)
	}
	for i := range m.Readers {
		m.Readers[i] = ^m.Readers[i]
	}
	err := s.drive(m)
	if err == nil && m.Freed > 0 {
		s.cfg.Logger.Warn("lockoffload: a slot had something of no session that lives", "slot", slot, "recovered", m.Freed)
		s.mu.Lock()
		s.counts.Recovered += uint64(m.Freed)
		s.mu.Unlock()
	}
	return err
}

// lives are the bits among readers of those that have a session.
func (s *Server) lives() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	bits := make([]uint64, s.l.ReadersSize()/8)
	for owner := range s.sessions {
		if s.l.HasReaderBit(owner) {
			bits[(owner-1)/64] |= 1 << ((owner - 1) % 64)
		}
	}
	return bits
}

// living tells whether the owner of a tag has a session.
func (s *Server) living(tag uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessions[uint16(tag>>48)]
	return one != nil && one.invite.Epoch == uint16(tag>>32)
}
