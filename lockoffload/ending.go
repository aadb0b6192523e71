package lockoffload

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// fenceQP keeps late requests of a client from being executed.
func fenceQP(qp *verbs.QP) error {
	err := qp.Quiesce()
	if errors.Is(err, verbs.ErrClosed) {
		return nil // the program has closed it
	}
	return err
}

// finish ends sessions: it fences each, then recovers the locks of all in one pass,
// then frees their places. The watch retries sessions for which that fails, and those with
// a lease that still runs, unless they are evicted; meanwhile their places and locks stay
// as they are.
func (s *Server) finish(over []*Session) error {
	s.ending.Lock()
	defer s.ending.Unlock()
	var fenced []*Session
	var errs []error
	for _, one := range over {
		switch {
		case one.ended:
			continue
		case !one.fenced:
			if err := s.fence(one.qp); err != nil && !s.removed(err) {
				errs = append(errs, fmt.Errorf("fence owner %d: %w", one.info.Owner, err))
				continue
			}
			one.fenced = true
			close(one.done)
		}
		fenced = append(fenced, one)
	}
	fenced, err := s.runOut(fenced)
	errs = append(errs, err)
	if len(fenced) > 0 {
		gone := make([]machine.Identity, len(fenced))
		for i, one := range fenced {
			gone[i] = machine.Identity{Owner: one.info.Owner, Epoch: one.info.Epoch}
		}
		m := (&machine.Recovery{Region: s.cfg.Region.mr.Bytes()}).DeadSessions(&s.l, gone...)
		if err := s.drive(m); err != nil && !s.removed(err) {
			errs = append(errs, fmt.Errorf("recover %d sessions: %w", len(fenced), err))
		} else {
			for _, one := range fenced {
				errs = append(errs, s.vacate(one))
			}
			s.mu.Lock()
			s.counts.Recovered += uint64(m.Freed)
			s.mu.Unlock()
			s.cfg.Logger.Info("lockoffload: sessions ended", "sessions", len(fenced), "recovered", m.Freed)
		}
	}
	return errors.Join(errs...)
}

// runOut returns the fenced sessions that are evicted, or with a lease that must have run
// out by now. ending must be held.
func (s *Server) runOut(fenced []*Session) (over []*Session, err error) {
	var open []*Session
	for _, one := range fenced {
		switch {
		case one.evicted:
			over = append(over, one)
		case one.until.IsZero():
			open = append(open, one)
		case !time.Now().Before(one.until):
			over = append(over, one)
		}
	}
	if len(open) == 0 {
		return over, nil
	}
	look := &machine.Once{Work: machine.Work{L: s.l}} // the last heartbeats may be on their way through the bus
	look.Settle()
	if err := s.drive(look); err != nil && !s.removed(err) {
		return over, fmt.Errorf("look for heartbeats of %d sessions: %w", len(open), err)
	}
	for _, one := range open {
		now := time.Now()
		if one.until = one.lease.Fenced(s.heartbeat(one), now); !now.Before(one.until) {
			over = append(over, one)
		}
	}
	return over, nil
}

// removed reports whether the target's device is gone, which err may indicate. Then
// the kernel has destroyed the queue pairs by which clients reach the region, and there is
// no way to the region either. ending must be held.
func (s *Server) removed(err error) bool {
	device := s.cfg.PD.Device()
	if errors.Is(err, syscall.EIO) && !device.Removed() && s.loop != nil {
		// A device that has an error says EIO too. To destroy something tells the two
		// apart, and this is made again when it is needed.
		_ = s.loop.close()
		s.loop = nil
	}
	return device.Removed()
}

// vacate frees the place of a session that has been recovered. ending must be held.
func (s *Server) vacate(one *Session) error {
	one.ended = true
	err := one.dispose()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, one.info.Owner)
	if one.expired {
		s.counts.Expired++
		s.cfg.Logger.Warn("lockoffload: session's lease ran out", "owner", one.info.Owner, "epoch", one.info.Epoch)
	} else {
		s.counts.Ended++
	}
	return err
}

// drive runs a machine through the loopback, a new one if the last one failed. ending
// must be held.
func (s *Server) drive(m machine.Machine) (err error) {
	if s.shut {
		return ErrClosed
	}
	if s.cfg.PD.Device().Removed() {
		return errRemoved
	}
	if s.loop == nil {
		if s.loop, err = newLoopback(s.cfg.PD, s.cfg.GID, s.cfg.Region, s.cfg.Lease); err != nil {
			s.loop = nil
			return err
		}
	}
	if err = s.loop.drive(m); err != nil {
		err = errors.Join(err, s.loop.close())
		s.loop = nil
	}
	return err
}

// noted records the watch's present error, or nil, for Err and logs changes of it.
func (s *Server) noted(err error) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = err
	s.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.cfg.Logger.Error("lockoffload: server cannot take back what sessions left; it goes on trying", "error", err)
	case err == nil && before != nil:
		s.cfg.Logger.Info("lockoffload: server takes back again what sessions leave")
	}
}
