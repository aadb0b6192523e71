package dc

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// TargetConfig says how to make a target. PD must be set; all other zero values
// are useful.
type TargetConfig struct {
	PD *verbs.PD
	// GID is the local address; the zero value means what an empty
	// [verbs.GIDQuery] finds.
	GID verbs.GIDEntry
	// AccessKey is what initiators must show.
	AccessKey uint64
	// Responders is the number of responder contexts: initiators that can be
	// attached at the same time. 0 means 16.
	Responders int
	// Receives is the depth of the shared receive queue; 0 means 1024.
	Receives int
	// Lease is how long an initiator may be silent before its responder
	// context is taken back; 0 means 2 s. Initiators give a sign of life four
	// times as often.
	Lease time.Duration
	// Retry is when an initiator that was answered busy comes again unless it
	// is called earlier; 0 means 50 ms.
	Retry time.Duration
	// Service is a port at which initiators that get no answer can ask, through
	// the connection manager, where the target is; the address carries it. A
	// target that is made again with the same GID and Service is found under
	// the address of the first. Each target of a host needs a port of its own.
	// 0 means none. It needs the software back end, which Auto then is, and a
	// GID that is an IP address, as with RoCE v2.
	Service uint16
	// Access is what initiators may do; 0 means whatever the memory regions
	// of PD allow.
	Access  verbs.Access
	Backend Backend
	// MTU of the hardware back end, which its initiators must have too; 0
	// means the port's.
	MTU    verbs.MTU
	Logger *slog.Logger // nil: silent
}

func (c *TargetConfig) defaults() {
	if c.Responders <= 0 {
		c.Responders = 16
	}
	if c.Receives <= 0 {
		c.Receives = 1024
	}
	if c.Lease <= 0 {
		c.Lease = 2 * time.Second
	}
	if c.Retry <= 0 {
		c.Retry = 50 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Target is what initiators reach: a pool of responder contexts behind one
// address, with one shared receive queue. Its methods are safe for concurrent
// use; receive batches are not.
type Target struct {
	cfg   TargetConfig
	ctl   *control
	self  place
	addr  Address
	srq   *verbs.SRQ
	idle  *verbs.CQ // of the send sides, which nobody uses
	cq    *verbs.CQ // receives
	start time.Time
	stop  context.CancelFunc
	work  sync.WaitGroup
	alarm alarm // guarded by mu
	door  *service

	mu         sync.Mutex
	core       *targetCore
	responders []*verbs.QP
	resets     []reset
	closed     bool

	inbox inbox
}

// reset is a responder context to be made ready.
type reset struct {
	slot  int
	clean bool
}

// NewTarget makes a target and begins to answer initiators.
func NewTarget(cfg TargetConfig) (t *Target, err error) {
	cfg.defaults()
	if cfg.PD == nil {
		return nil, opError("make", "target", errors.Join(verbs.ErrAttributes, errors.New("PD is missing")))
	}
	t = &Target{cfg: cfg, start: time.Now(), stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(opError("make", "target", err), t.Close())
		}
	}()
	if cfg.Service != 0 && cfg.Backend == Auto {
		cfg.Backend = Software
	}
	if done, err := cfg.Backend.choose(t.hardware); done {
		return t, err
	}
	dev := cfg.PD.Device()
	t.ctl, err = newControl(cfg.PD, cfg.GID, cfg.Logger)
	if err != nil {
		t.ctl = nil
		return t, err
	}
	if t.self, err = t.ctl.place(); err != nil {
		return t, err
	}
	if t.srq, err = cfg.PD.CreateSRQ(verbs.SRQConfig{MaxWR: cfg.Receives}); err != nil {
		return t, err
	}
	if t.idle, err = dev.CreateCQ(verbs.CQConfig{Depth: 16, PollOnly: true}); err != nil {
		return t, err
	}
	if t.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: cfg.Receives + cfg.Responders}); err != nil {
		return t, err
	}
	t.inbox.init(t.cq)
	for range cfg.Responders {
		qp, err := t.newResponder()
		if err != nil {
			return t, err
		}
		t.responders = append(t.responders, qp)
	}
	epoch := rand.Uint64() | 1
	t.addr = Address{GID: t.self.gid, LID: t.self.lid, Service: cfg.Service, MTU: t.ctl.mtu, QPN: t.self.qpn, QKey: t.self.qkey}
	if cfg.Service != 0 {
		if t.door, err = openService(t.ctl.gid, t.addr, cfg.Logger); err != nil {
			return t, err
		}
	}
	t.core = newTargetCore(epoch, cfg.AccessKey, cfg.Responders, targetLimits{cfg.Lease, cfg.Retry}, t, rand.Uint64)
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	t.work.Go(func() { t.ctl.read(ctx, t.received) })
	if t.door != nil {
		t.work.Go(func() { t.door.serve(ctx) })
	}
	t.alarm.init(t.tick)
	return t, nil
}

func (t *Target) newResponder() (*verbs.QP, error) {
	return t.cfg.PD.CreateQP(verbs.QPConfig{SendCQ: t.idle, RecvCQ: t.cq, SRQ: t.srq, GID: t.ctl.gid, MaxSendWR: 1, Access: t.cfg.Access})
}

// Address is what initiators resolve. It means whichever target is there: with
// the Incarnation that [Target.Incarnation] answers it means this one only.
func (t *Target) Address() Address { return t.addr }

// Incarnation tells the target from others that had its address before, or will
// have it.
func (t *Target) Incarnation() uint64 {
	if t.addr.Hardware {
		return t.addr.Incarnation
	}
	return t.core.epoch
}

// Stats are the counters so far.
func (t *Target) Stats() TargetStats {
	if t.addr.Hardware {
		return TargetStats{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.core.stats
	s.Rubbish += t.ctl.rubbish.Load()
	s.Live = len(t.core.sessions)
	return s
}

func (t *Target) now() time.Duration { return time.Since(t.start) }

func (t *Target) received(m *message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.core.received(m, t.now())
	t.reset()
	t.alarm.set(t.core.next(), t.now())
}

func (t *Target) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.alarm.rung()
	t.core.tick(t.now())
	t.reset()
	t.alarm.set(t.core.next(), t.now())
}

// reset makes the responder contexts ready that were released. It comes after
// the answers, for which the initiator waits.
func (t *Target) reset() {
	for _, r := range t.resets {
		if err := t.resetOne(r); err != nil {
			t.cfg.Logger.Error("dc: responder context lost", "slot", r.slot, "err", err)
			continue
		}
		t.core.ready(r.slot, t.now())
	}
	t.resets = t.resets[:0]
}

func (t *Target) resetOne(r reset) error {
	qp := t.responders[r.slot]
	if r.clean {
		return qp.ModifySteps(verbs.ResetStep(), qp.InitStep())
	}
	// The old initiator may be alive and still send: another number keeps its
	// packets away from the next session.
	if err := qp.Close(); err != nil {
		return err
	}
	qp, err := t.newResponder()
	if err == nil {
		t.responders[r.slot] = qp
	}
	return err
}

// attach implements targetIO.
func (t *Target) attach(slot int, session uint64, m *message) (uint32, error) {
	qp := t.responders[slot]
	t.inbox.tag(qp.Num(), session)
	err := qp.ModifySteps(responderStep(t.ctl, m, m.psn))
	if err != nil {
		t.inbox.collect(qp.Num())
		t.cfg.Logger.Warn("dc: no session", "initiator", m.from.gid, "err", err)
		if qp.State() != verbs.StateInit {
			err = errors.Join(err, qp.ToReset(), qp.Init())
		}
	}
	return qp.Num(), err
}

// release implements targetIO.
func (t *Target) release(slot int, _ uint64, clean bool) {
	qp := t.responders[slot]
	if !clean {
		// Nothing more may be carried out for it.
		if err := qp.ToError(); err != nil {
			t.cfg.Logger.Error("dc: release", "err", err)
		}
	}
	t.inbox.collect(qp.Num())
	t.resets = append(t.resets, reset{slot, clean})
}

// prepare implements targetIO.
func (t *Target) prepare() { t.reset() }

// send implements targetIO.
func (t *Target) send(to place, m *message) {
	m.from, m.mtu = t.self, t.ctl.mtu
	t.ctl.send(to, m)
}

// NewRecvBatch makes a batch of receives for the shared receive queue, which
// all initiators' SENDs and WRITEs with immediate take. A missing receive stops
// the session concerned for a while; it is not an error.
func (t *Target) NewRecvBatch(n int) (*verbs.RecvBatch, error) { return t.srq.NewRecvBatch(n) }

// Poll takes what has arrived, at most len(rs), and answers how many. It never
// blocks.
func (t *Target) Poll(rs []Received) (int, error) { return t.inbox.poll(rs) }

// Wait is Poll until there is something. It ends early with the context's error
// or with [ErrClosed].
func (t *Target) Wait(ctx context.Context, rs []Received) (int, error) { return t.inbox.wait(ctx, rs) }

// Close ends all sessions at once: requests of attached initiators fail.
// Receives that are posted get no completion. Closing twice is not an error.
func (t *Target) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.mu.Unlock()
	t.alarm.stop()
	t.stop()
	t.work.Wait()
	t.inbox.shut()
	var errs []error
	if t.door != nil {
		errs = append(errs, t.door.close())
	}
	for _, qp := range t.responders {
		errs = append(errs, qp.Close())
	}
	if t.ctl != nil {
		errs = append(errs, t.ctl.close())
	}
	for _, cq := range []*verbs.CQ{t.cq, t.idle} {
		if cq != nil {
			errs = append(errs, cq.Close())
		}
	}
	if t.srq != nil {
		errs = append(errs, t.srq.Close())
	}
	return errors.Join(errs...)
}
