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
	// strayLeases is the time, in leases, in which the watch looks at each slot once.
	strayLeases = 16
)

// watch looks at heartbeats, and at some of the slots each time, until the context ends.
func (s *Server) watch(ctx context.Context) {
	defer close(s.gone)
	tick := time.NewTicker(max(s.cfg.Lease/watchesPerLease, time.Millisecond))
	defer tick.Stop()
	const parts = watchesPerLease * strayLeases
	for part := 0; ; part = (part + 1) % parts {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// One that fails, for one session perhaps, does not keep the others waiting.
		if s.cfg.PD.Device().Removed() {
			s.noted(errors.Join(errRemoved, s.finish(s.over())))
			continue
		}
		s.noted(errors.Join(
			s.finish(s.over()),
			s.watchSlots(s.l.Slots*part/parts, s.l.Slots*(part+1)/parts),
		))
	}
}

// over returns the sessions that are to end.
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

// heartbeat returns the heartbeat word of a session's client.
func (s *Server) heartbeat(one *Session) uint64 {
	return memory.LoadWord(s.cfg.Region.mr.Bytes(), s.l.BeatOff(one.info.Owner))
}

// watchSlots finds and takes back locks, exclusive or shared, that no live session holds.
// There should be none, but one would stay for ever.
func (s *Server) watchSlots(from, to int) error {
	region := s.cfg.Region.mr.Bytes()
	lives := s.lives()
	for slot := from; slot < to; slot++ {
		if s.stray(region, slot, lives) {
			if err := s.takeStray(region, slot); err != nil {
				return err
			}
		}
	}
	return nil
}

// stray reports whether a slot seems to have a lock or a reader's bit of a session that is
// gone.
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

// takeStray looks again while no session begins or ends, and takes back what it finds.
func (s *Server) takeStray(region []byte, slot int) error {
	s.ending.Lock()
	defer s.ending.Unlock()
	m := &machine.Recovery{Region: region, Slot: slot, End: slot + 1, Readers: s.lives()}
	m.Dead = func(identity uint64) bool {
		return identity>>16 != memory.AgentOwner && !s.living(identity<<32)
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

// lives returns the readers' bits of owner numbers that have a session.
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

// living reports whether the session of a tag lives.
func (s *Server) living(tag uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessions[uint16(tag>>48)]
	return one != nil && one.info.Epoch == uint16(tag>>32)
}
