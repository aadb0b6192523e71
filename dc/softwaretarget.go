package dc

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/internal/alarm"
	"github.com/goverbs/goverbs/internal/closing"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// softwareTarget is a target over RC queue pairs: it drives a [session.Target].
type softwareTarget struct {
	t       *Target
	ctl     *Control
	addr    Address
	idle    *verbs.CQ // of the send sides, which are not used
	made    closing.Stack
	start   time.Time
	cancel  context.CancelFunc
	work    sync.WaitGroup
	service *service

	mu         sync.Mutex
	timer      alarm.Alarm
	core       *session.Target
	responders []*verbs.QP
	packets    []uint32 // number of the next packet to each, when that was seen last
	resets     []reset
	closed     bool
}

// reset is a responder context to be made ready.
type reset struct {
	slot  int
	clean bool
}

func newSoftwareTarget(t *Target) (_ targetBackend, err error) {
	cfg := &t.cfg
	s := &softwareTarget{t: t, start: time.Now(), cancel: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(), t.queues.Close())
		}
	}()
	if s.ctl, err = newControl(ControlConfig{PD: cfg.PD, GID: cfg.GID, TrafficClass: cfg.TrafficClass, Logger: cfg.Logger}); err != nil {
		return nil, err
	}
	s.made.Add(s.ctl)
	if s.idle, err = cfg.PD.Device().CreateCQ(verbs.CQConfig{Depth: 16, PollOnly: true}); err != nil {
		return nil, err
	}
	s.made.Add(s.idle)
	if err := t.prepare(cfg.Receives + cfg.Responders); err != nil {
		return nil, err
	}
	s.made.Add(closing.Func(s.closeResponders))
	for range cfg.Responders {
		qp, err := s.newResponder()
		if err != nil {
			return nil, err
		}
		s.responders = append(s.responders, qp)
	}
	s.packets = make([]uint32, len(s.responders))
	at := s.ctl.at
	s.addr = Address{GID: verbs.GID(at.GID), LID: at.LID, Service: cfg.Service, KeyCheck: wire.KeyCheckOf(cfg.AccessKey), MTU: s.ctl.mtu, QPN: at.QPN, QKey: at.QKey}
	if cfg.Service != 0 {
		if s.service, err = openService(s.ctl.gid.entry(), s.addr, cfg.Logger); err != nil {
			return nil, err
		}
		s.made.Add(closing.Func(s.service.close))
	}
	s.core = session.NewTarget(rand.Uint64()|1, cfg.AccessKey, cfg.Responders, session.TargetLimits{Lease: cfg.Lease, Retry: cfg.Retry, Recall: cfg.Recall,
		PacketsCount: driver.SoftRoCE(cfg.PD.Device())}, s, rand.Uint64)
	s.timer.Init(s.tick, time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.ctl.routing.Lock()
	s.ctl.rest = controlUser{s.received, s.moved}
	s.ctl.routing.Unlock()
	if s.service != nil {
		s.work.Go(func() { s.service.serve(ctx) })
	}
	return s, nil
}

func (s *softwareTarget) closeResponders() error {
	var errs []error
	for _, qp := range s.responders {
		errs = append(errs, qp.Close())
	}
	return errors.Join(errs...)
}

func (s *softwareTarget) newResponder() (*verbs.QP, error) {
	cfg := &s.t.cfg
	return cfg.PD.CreateQP(verbs.QPConfig{SendCQ: s.idle, RecvCQ: s.t.cq, SRQ: s.t.srq, GID: s.ctl.gid.entry(), MaxSendWR: 1, Access: cfg.Access})
}

func (s *softwareTarget) address() Address { return s.addr }

func (s *softwareTarget) generation() uint64 { return s.core.Epoch }

func (s *softwareTarget) stats() TargetStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.core.Counted()
	return TargetStats{Attaches: c.Attaches, Detaches: c.Detaches, Expired: c.Expired, Reclaimed: c.Reclaimed, Busy: c.Busy, Refused: c.Refused,
		Recalls: c.Recalls, Malformed: c.Malformed + s.ctl.malformed.Load(), Dropped: s.ctl.dropped.Load(), Live: c.Live}
}

func (s *softwareTarget) now() time.Duration { return time.Since(s.start) }

// step calls f, a step of the machine, unless the target is closed, and does then what the
// machine wants.
func (s *softwareTarget) step(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	f()
	s.reset()
	s.timer.Set(s.core.Next(), s.now())
}

func (s *softwareTarget) received(m *wire.Message) {
	s.step(func() { s.core.Received(m, s.now()) })
}

// moved: the local GID has another place in the GID table.
func (s *softwareTarget) moved() { s.step(func() { s.core.Moved(s.now()) }) }

// tick looks at what has come before it lets sessions expire.
func (s *softwareTarget) tick() {
	s.ctl.drain()
	s.step(func() { s.core.Tick(s.now()) })
}

// reset makes the responder contexts ready that were released. It comes after
// the replies, for which the initiator waits. Until then an initiator that sends on
// although it has detached is heard, under the session that it had.
func (s *softwareTarget) reset() {
	for len(s.resets) > 0 {
		r := s.resets[0]
		s.resets = s.resets[1:]
		err := s.resetOne(r)
		if err != nil {
			s.t.cfg.Logger.Error("dc: responder context damaged", "slot", r.slot, "err", err)
		}
		s.core.Ready(r.slot, err, s.now())
	}
	s.resets = nil
}

func (s *softwareTarget) resetOne(r reset) error {
	qp := s.responders[r.slot]
	if !driver.SoftRoCE(s.t.cfg.PD.Device()) {
		// The libraries of devices throw away what they find in the completion queue when a
		// queue pair is reset.
		s.halt(qp)
		s.t.in.gather()
	}
	if r.clean && !driver.ResetRaces(s.t.cfg.PD.Device()) {
		err := driver.ModifySteps(qp, driver.ResetStep(), driver.InitStep(qp))
		s.t.in.collect(qp.Num())
		return err
	}
	// The old initiator may be alive and still send: another number keeps its
	// packets away from the next session. So the next queue pair is made while
	// this one has its own. Where a reset is not safe so soon after the last
	// acknowledgement, a clean one is closed too.
	next, err := s.newResponder()
	if err != nil {
		return err
	}
	s.responders[r.slot] = next
	err = qp.Close()
	s.t.in.collect(qp.Num())
	return err
}

// Attach implements [session.TargetIO].
func (s *softwareTarget) Attach(slot int, id uint64, m *wire.Message) (uint32, error) {
	qp := s.responders[slot]
	o := origin{session: id}
	var a Address
	if m.Reply != [AddressLen]byte{} && a.UnmarshalBinary(m.Reply[:]) == nil {
		o.replyTo = &a
	}
	s.t.in.begin(qp.Num(), o)
	s.packets[slot] = m.PSN
	err := s.ctl.gid.attempt(func(gid verbs.GIDEntry) error {
		var step driver.ModifyStep
		toResponder(&step, s.ctl, gid, m, s.t.cfg.TrafficClass)
		return driver.ModifySteps(qp, step)
	})
	if err != nil {
		s.t.cfg.Logger.Warn("dc: no session", "initiator", verbs.GID(m.From.GID), "err", err)
	}
	return qp.Num(), err
}

// Release implements [session.TargetIO].
func (s *softwareTarget) Release(slot int, _ uint64, clean bool) {
	qp := s.responders[slot]
	if !clean {
		s.halt(qp)
	}
	s.resets = append(s.resets, reset{slot, clean})
}

// halt has nothing more carried out for the initiator of a responder context.
func (s *softwareTarget) halt(qp *verbs.QP) {
	if err := qp.ToError(); err != nil {
		s.t.cfg.Logger.Error("dc: release", "err", err)
	}
}

// Prepare implements [session.TargetIO].
func (s *softwareTarget) Prepare() { s.reset() }

// Repair implements [session.TargetIO].
func (s *softwareTarget) Repair(slot int) { s.resets = append(s.resets, reset{slot: slot}) }

// Moved implements [session.TargetIO]. Soft-RoCE reports the number that it
// expects at the moment.
func (s *softwareTarget) Moved(slot int) bool {
	a, err := s.responders[slot].Query()
	if err != nil {
		s.t.cfg.Logger.Error("dc: responder context", "slot", slot, "err", err)
		return false
	}
	before := s.packets[slot]
	s.packets[slot] = a.RQPSN
	return a.RQPSN != before
}

// Send implements [session.TargetIO].
func (s *softwareTarget) Send(to wire.ControlAddress, m *wire.Message) { s.ctl.send(to, m) }

func (s *softwareTarget) stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.timer.Stop()
	s.cancel()
	s.work.Wait()
}

func (s *softwareTarget) close() error { return s.made.Close() }
