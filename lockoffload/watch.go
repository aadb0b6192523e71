package lockoffload

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A client counts its lease from when it posted a heartbeat, the target from
// when it saw it, which is later. The margin is for clocks that run apart.
const (
	watchesPerLease = 8
	firstHeartbeat  = time.Minute
)

func (s *Server) margin() time.Duration { return s.cfg.Lease / 2 }

// watch looks at heartbeats and tickets until the context ends.
func (s *Server) watch(ctx context.Context) {
	defer close(s.gone)
	tick := time.NewTicker(max(s.cfg.Lease/watchesPerLease, time.Millisecond))
	defer tick.Stop()
	served := map[int]served{}
	for round := 0; ; round++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.watchSessions(time.Now())
		if round%watchesPerLease == 0 {
			s.watchTickets(time.Now(), served)
		}
	}
}

func (s *Server) watchSessions(now time.Time) {
	s.mu.Lock()
	var over []*Session
	for _, one := range s.sessions {
		if v, err := s.cfg.Region.mr.Load64(s.l.beatOff(one.invite.Owner)); err == nil && v != one.last {
			one.last, one.moved, one.alive = v, now, true
		}
		limit := s.cfg.Lease + s.margin()
		if !one.alive {
			limit = max(limit, firstHeartbeat)
		}
		if one.alive && one.last == goodbye || now.Sub(one.moved) > limit {
			over = append(over, one)
		}
	}
	s.mu.Unlock()
	for _, one := range over {
		s.finish(one, one.last != goodbye)
	}
}

// served is a ticket whose owner is not known.
type served struct {
	ticket uint32
	since  time.Time
}

// watchTickets passes on tickets that are marked, and those whose owner did not
// put down whose they are for a lease.
func (s *Server) watchTickets(now time.Time, seen map[int]served) {
	mr := s.cfg.Region.mr
	for slot := range s.l.Slots {
		word, err := mr.Load64(s.l.ticketOff(slot))
		if err != nil {
			return
		}
		next, serving := tickets(word)
		if next == serving {
			delete(seen, slot)
			continue
		}
		entry, err := mr.Load64(s.l.queueOff(slot, serving))
		if err != nil {
			return
		}
		if entry != skipMark(serving) {
			if uint32(entry) == serving && s.living(entry) {
				delete(seen, slot)
				continue
			}
			if was, ok := seen[slot]; !ok || was.ticket != serving {
				seen[slot] = served{serving, now}
				continue
			} else if now.Sub(was.since) < s.cfg.Lease {
				continue
			}
		}
		delete(seen, slot)
		if err := s.loop.drive(&skipper{slot: slot, ticket: serving, seen: entry}); err != nil {
			s.cfg.Logger.Error("lockoffload: ticket not skipped", "slot", slot, "error", err)
			return
		}
		s.mu.Lock()
		s.counts.Skipped++
		s.mu.Unlock()
	}
}

// living tells whether the owner of a tag has a session.
func (s *Server) living(tag uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessions[uint16(tag>>48)]
	return one != nil && one.invite.Epoch == uint16(tag>>32)
}

// loopback is the target's own way to its region: through the device, like
// everybody else.
type loopback struct {
	region *Region
	cq     *verbs.CQ
	qp     *verbs.QP
	line   *line
	mr     *verbs.MR
	turn   chan struct{}
}

func newLoopback(pd *verbs.PD, gid verbs.GIDEntry, r *Region) (lb *loopback, err error) {
	lb = &loopback{region: r, turn: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			lb.close()
		}
	}()
	if lb.cq, err = pd.Device().CreateCQ(verbs.CQConfig{}); err != nil {
		return nil, err
	}
	if lb.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: lb.cq, GID: gid}); err != nil {
		return nil, err
	}
	self, err := lb.qp.Endpoint()
	if err != nil {
		return nil, err
	}
	if err = lb.qp.Connect(self, verbs.ConnectConfig{}); err != nil {
		return nil, err
	}
	if lb.mr, err = pd.AllocMR(r.memory(), verbs.MRConfig{}); err != nil {
		return nil, err
	}
	lb.line, err = newLine(lb.qp, lb.cq, r.Remote(), func() {})
	return lb, err
}

func (lb *loopback) close() error {
	var errs []error
	if lb.line != nil {
		errs = append(errs, lb.line.close())
	}
	if lb.qp != nil {
		errs = append(errs, lb.qp.Close())
	}
	if lb.cq != nil {
		errs = append(errs, lb.cq.Close())
	}
	if lb.mr != nil {
		errs = append(errs, lb.mr.Close())
	}
	return errors.Join(errs...)
}

func (lb *loopback) recover(in Invite) (freed int, err error) {
	m := &recovery{identity: uint64(in.Owner)<<16 | uint64(in.Epoch), peek: func(off int) uint64 {
		v, _ := lb.region.mr.Load64(off)
		return v
	}}
	err = lb.drive(m)
	return m.freed, err
}

// drive runs a machine of the target.
func (lb *loopback) drive(m machine) error {
	lb.turn <- struct{}{}
	defer func() { <-lb.turn }()
	w := m.base()
	w.l, w.mem = lb.region.Layout, lb.mr.Bytes()
	for {
		v, err := m.step()
		if v != post {
			return err
		}
		f, err := lb.line.issue(w.ops, lb.mr)
		if err == nil {
			err = lb.line.await(context.Background(), f)
		}
		if err != nil {
			return err
		}
	}
}
