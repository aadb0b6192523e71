package dc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/internal/alarm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// software is the initiator over RC queue pairs: it drives a [session.Initiator].
type software struct {
	i      *Initiator
	ctl    *Control
	ownCtl bool
	work   sync.WaitGroup // queue pairs being connected, questions to services
	timer  alarm.Alarm

	// Guarded by the initiator's lock.
	core   *session.Initiator
	qps    []contextQP
	joins  map[*Peer][]chan error
	spare  []session.Action // memory for core.Actions
	reply  [AddressLen]byte
	acting sync.WaitGroup
	rests  rests // of the goroutines that perform
}

// contextQP is the queue pair of an initiator context.
type contextQP struct {
	qp    *verbs.QP
	batch *verbs.Batch
	way   [4]driver.ModifyStep // from wherever it is to RTS
	mtu   int                  // bytes, of the session
	ring  ring
	// returned are requests of a target without a receive, which wait again when
	// all of them have been flushed.
	returned  []entry
	returning bool
	failure   error // of the session's first request that failed
}

func newSoftware(i *Initiator) (_ backend, err error) {
	cfg := &i.cfg
	setInt(&cfg.Depth, 31)
	s := &software{i: i, ctl: cfg.Control, joins: make(map[*Peer][]chan error)}
	if cfg.ReplyTo != (Address{}) {
		w := cfg.ReplyTo.wire()
		w.Append(s.reply[:0])
	}
	s.core = session.NewInitiator(rand.Uint64(), cfg.Contexts, session.Limits{Quota: cfg.Quota, Hold: cfg.Hold, MaxWait: cfg.MaxWait, Retransmit: cfg.Retransmit,
		ConnectTimeout: cfg.ConnectTimeout, Keep: !cfg.CloseSessions && driver.SoftRoCE(cfg.PD.Device()), TimeWait: time.Second}, rand.Uint32)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(), i.closeQueue())
		}
	}()
	if s.ctl == nil {
		if s.ctl, err = newControl(ControlConfig{PD: cfg.PD, GID: cfg.GID, TrafficClass: cfg.TrafficClass, Logger: cfg.Logger}); err != nil {
			return nil, err
		}
		s.ownCtl = true
	} else if s.ctl.pd.Device() != cfg.PD.Device() || cfg.GID != (verbs.GIDEntry{}) && !s.ctl.gid.is(cfg.GID) {
		return nil, fmt.Errorf("%w: the control queue is of another device or address", verbs.ErrAttributes)
	}
	if err := i.dispatch(cfg.Contexts * cfg.Depth); err != nil {
		return nil, err
	}
	for range cfg.Contexts {
		q := contextQP{ring: newRing(cfg.Depth)}
		if err := s.create(&q); err != nil {
			return nil, err
		}
		s.qps = append(s.qps, q)
	}
	s.timer.Init(s.tick, time.Millisecond)
	return s, s.ctl.join(s.core.ID, controlUser{s.received, s.moved})
}

// create makes the queue pair of a context.
func (s *software) create(q *contextQP) error {
	cfg := &s.i.cfg
	qp, err := cfg.PD.CreateQP(verbs.QPConfig{SendCQ: s.i.d.CQ(), GID: s.ctl.gid.entry(), MaxSendWR: cfg.Depth, MaxRecvWR: 1, MaxSendSGE: cfg.MaxSGE, Access: verbs.LocalWrite,
		MaxInline: cfg.MaxInline, Ops: cfg.ops()})
	if err != nil {
		return err
	}
	batch, err := s.i.d.NewBatch(qp, cfg.Depth)
	if err != nil {
		return errors.Join(err, qp.Close())
	}
	q.qp, q.batch = qp, batch
	q.way = [...]driver.ModifyStep{driver.ResetStep(), driver.InitStep(qp), {}, requesterStep(s.ctl, cfg, 0)}
	return nil
}

func (s *software) resolve(p *Peer) error {
	if p.addr.Hardware {
		return errors.Join(verbs.ErrUnsupported, errors.New("a DCT needs an initiator of the hardware back end"))
	}
	return nil
}

// meet returns the machine's peer, and makes it first if there is none.
func (s *software) meet(p *Peer) *session.Peer {
	a := p.active()
	if a.soft == nil {
		a.soft = s.core.AddPeer(session.PeerAddress{At: p.addr.control(), Generation: p.addr.Generation, Service: p.addr.Service != 0, Key: p.key})
		a.soft.Owner = p
	}
	return a.soft
}

func owner(m *session.Peer) *Peer { return m.Owner.(*Peer) }

func (s *software) leave(p *Peer, forever bool) error {
	if p.a == nil || p.a.soft == nil {
		return nil
	}
	drop := s.core.Dismiss
	if forever {
		drop = s.core.Remove
	}
	if !drop(p.a.soft, s.i.now()) {
		return ErrInUse
	}
	return nil
}

func (s *software) attach(ctx context.Context, p *Peer) error {
	i := s.i
	i.mu.Lock()
	if err := i.mine(p); err != nil {
		i.mu.Unlock()
		return err
	}
	m := s.meet(p)
	if x := m.Context(); x != nil && x.Attached() {
		i.mu.Unlock()
		return nil
	}
	done := make(chan error, 1)
	s.joins[p] = append(s.joins[p], done)
	s.core.Enqueue(m, 0, i.now())
	i.unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	case <-i.ctx.Done(): // closed, or its queue is lost
	}
	i.mu.Lock()
	defer i.unlock()
	select {
	case err := <-done:
		return err
	default:
	}
	s.joins[p] = slices.DeleteFunc(s.joins[p], func(other chan error) bool { return other == done })
	if len(s.joins[p]) == 0 {
		delete(s.joins, p)
		if i.open() { // a peer that is being attached to cannot be forgotten
			s.core.Withdraw(m, 0, true)
		}
	}
	if err := i.usable(); err != nil {
		return err
	}
	return ctx.Err()
}

// attached ends the calls of Attach that wait for the peer.
func (s *software) attached(p *Peer, err error) {
	if len(s.joins) == 0 {
		return
	}
	for _, done := range s.joins[p] {
		done <- err
	}
	delete(s.joins, p)
}

func (s *software) stats(out *Stats) {
	c := s.core.Counted()
	*out = Stats{Attaches: c.Attaches, Resumes: c.Resumes, Hits: c.Hits, Evictions: c.Evictions, Busy: c.Busy, NotReady: c.NotReady,
		Waits: c.Waits, Waited: c.Waited, GaveWay: c.GaveWay, Failures: c.Failures, Retransmits: c.Retransmits, Lookups: c.Lookups,
		Malformed: c.Malformed, Live: c.Live, Kept: c.Kept, Waiting: c.Waiting}
	if s.ctl != nil {
		out.Malformed += s.ctl.malformed.Load()
	}
}

func (s *software) peerStats(p *Peer, out *PeerStats) {
	if m := p.a.soft; m != nil {
		out.Attaches, out.Resumes, out.Failures, out.Waits, out.Waited = m.Stats.Attaches, m.Stats.Resumes, m.Stats.Failures, m.Stats.Waits, m.Stats.Waited
		out.Attached = m.Context() != nil && m.Context().Attached()
	}
}

func (s *software) queuePairs() int { return len(s.qps) + 1 }

// received takes a control message.
func (s *software) received(m *wire.Message) {
	joins := 0
	s.i.step(func() {
		s.core.Received(m, s.i.now())
		joins = len(s.joins)
	})
	if joins > 0 {
		yield() // a goroutine that waits for a session goes first
	}
}

// moved: the local GID has another place in the GID table.
func (s *software) moved() { s.i.step(func() { s.core.Moved(s.i.now()) }) }

func (s *software) tick() { s.i.step(func() { s.core.Tick(s.i.now()) }) }

func (s *software) stop() {
	s.timer.Stop()
	s.ctl.part(s.core.ID)
	s.acting.Wait()
	s.work.Wait()
	s.i.mu.Lock()
	for p := range s.joins {
		s.attached(p, opError("connect to", p.addr.String(), ErrClosed))
	}
	s.core.Part()
	var last []session.Action
	for _, a := range s.core.Actions {
		if a.Kind == session.ActSend {
			last = append(last, a)
		}
	}
	s.core.Actions = nil
	s.i.mu.Unlock()
	for k := range last {
		s.send(&last[k])
	}
	s.ctl.leave()
}

func (s *software) halt() {
	s.i.mu.Lock()
	var qps []*verbs.QP
	for k := range s.qps {
		qps = append(qps, s.qps[k].qp)
	}
	s.i.mu.Unlock()
	s.i.resetAll(qps)
}

func (s *software) close() error {
	var errs []error
	for _, q := range s.qps {
		errs = append(errs, q.qp.Close())
	}
	if s.ownCtl {
		errs = append(errs, s.ctl.Close())
	}
	return errors.Join(errs...)
}
