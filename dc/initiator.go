package dc

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// InitiatorConfig says how to make an initiator. PD must be set; all other zero
// values are useful.
type InitiatorConfig struct {
	PD *verbs.PD
	// GID is the local address; the zero value means what an empty
	// [verbs.GIDQuery] finds.
	GID verbs.GIDEntry
	// Contexts is the number of initiator contexts, each one queue pair and
	// attached to one target at a time. 0 means 16; 1 is the serial initiator
	// of the patent. With hardware it is the number of DCIs.
	Contexts int
	// Depth is how many requests of one context may be outstanding; 0 means
	// 64.
	Depth int
	// Quota is how many requests a context may post to its target while
	// others wait; 0 means 32.
	Quota int
	// Hold bounds the same in time, as far as the requests under way allow; 0
	// means 100 ms.
	Hold time.Duration
	// MaxPending is how many requests may wait for one target; 0 means 1024.
	MaxPending int
	// ConnectTimeout is how long a target may leave connect packets without
	// an answer; 0 means 5 s. A busy target answers.
	ConnectTimeout time.Duration
	// Retransmit is the first pause before a control message is sent again,
	// which doubles each time; 0 means 50 ms.
	Retransmit time.Duration
	// Parking says whether sessions are kept when their context leaves the
	// target.
	Parking Parking
	// AckTimeout is how long a queue pair waits for an acknowledgement. A dead
	// target shows after about seven times that; 0 means 67 ms.
	AckTimeout time.Duration
	Backend    Backend
	// MaxInline is how many bytes a request may have that is posted with
	// [verbs.Inline]; 0 means none.
	MaxInline int
	// Masked makes the queue pairs for masked atomics, which only mlx5 has;
	// elsewhere the initiator is refused with [verbs.ErrUnsupported].
	Masked bool
	// MTU of the hardware back end, which its targets must have too; 0 means
	// the port's.
	MTU verbs.MTU
	// Streams of each DCI, a power of two; 0 means what the device has, at
	// most 8; negative means none.
	Streams int
	Logger  *slog.Logger // nil: silent
}

func (c *InitiatorConfig) defaults() {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&c.Contexts, 16)
	set(&c.Depth, 64)
	set(&c.Quota, 32)
	set(&c.MaxPending, 1024)
	setTime := func(v *time.Duration, def time.Duration) {
		if *v <= 0 {
			*v = def
		}
	}
	setTime(&c.Hold, 100*time.Millisecond)
	setTime(&c.ConnectTimeout, 5*time.Second)
	setTime(&c.Retransmit, 50*time.Millisecond)
	setTime(&c.AckTimeout, verbs.AckTimeout(14).Duration())
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// lane is the queue pair of an initiator context.
type lane struct {
	qp    *verbs.QP
	batch *verbs.Batch
	mtu   int      // bytes, of the session
	ring  []posted // what is outstanding, in order
	head  int
	n     int
}

type posted struct {
	id uint64
	op Op
}

// Initiator sends requests to any number of targets through a few queue pairs.
// Its methods are safe for concurrent use.
//
// Somebody must poll: a session ends when its completions are taken, and only
// then can the next target be served.
type Initiator struct {
	cfg   InitiatorConfig
	hw    *hardware // then all that follows is not used
	ctl   *control
	self  place
	cq    *verbs.CQ
	park  parker
	start time.Time
	ctx   context.Context // of what goes on in the background
	stop  context.CancelFunc
	work  sync.WaitGroup
	turn  chan struct{} // holds a token while somebody waits

	mu     sync.Mutex
	core   *initiatorCore
	alarm  alarm
	spare  []action // memory for core.actions
	lanes  []lane
	byAddr map[uint64]*Peer // by the address's hash
	seed   maphash.Seed
	joins  map[*Peer][]chan error
	done   []Completion // that came without a completion of the device
	wcs    [32]verbs.WC
	parked [32]verbs.WC // of the one who waits
	acting sync.WaitGroup
	closed bool
}

// NewInitiator makes an initiator.
func NewInitiator(cfg InitiatorConfig) (i *Initiator, err error) {
	cfg.defaults()
	if cfg.PD == nil {
		return nil, opError("make", "initiator", errors.Join(verbs.ErrAttributes, errors.New("PD is missing")))
	}
	var hw *hardware
	done, err := cfg.Backend.choose(func() (err error) { hw, err = newHardware(cfg); return })
	if err != nil {
		return nil, opError("make", "initiator", err)
	}
	if done {
		return &Initiator{cfg: cfg, hw: hw}, nil
	}
	i = &Initiator{cfg: cfg, start: time.Now(), turn: make(chan struct{}, 1), stop: func() {},
		byAddr: make(map[uint64]*Peer), seed: maphash.MakeSeed(), joins: make(map[*Peer][]chan error)}
	i.core = newInitiatorCore(rand.Uint64(), cfg.Contexts, initiatorLimits{cfg.Quota, cfg.Hold, cfg.Retransmit, cfg.ConnectTimeout, cfg.Parking.on(cfg.PD.Device())}, rand.Uint32)
	defer func() {
		if err != nil {
			err = errors.Join(opError("make", "initiator", err), i.Close())
		}
	}()
	i.ctl, err = newControl(cfg.PD, cfg.GID, cfg.Logger)
	if err != nil {
		i.ctl = nil
		return i, err
	}
	if i.cq, err = cfg.PD.Device().CreateCQ(verbs.CQConfig{Depth: cfg.Contexts * cfg.Depth}); err != nil {
		return i, err
	}
	i.park.cq = i.cq
	for range cfg.Contexts {
		qp, err := cfg.PD.CreateQP(verbs.QPConfig{SendCQ: i.cq, GID: i.ctl.gid, MaxSendWR: cfg.Depth, MaxRecvWR: 1, Access: verbs.LocalWrite, MaxInline: cfg.MaxInline, Ops: cfg.ops()})
		if err != nil {
			return i, err
		}
		i.lanes = append(i.lanes, lane{qp: qp, ring: make([]posted, cfg.Depth)})
		if i.lanes[len(i.lanes)-1].batch, err = qp.NewBatch(cfg.Depth); err != nil {
			return i, err
		}
	}
	if i.self, err = i.ctl.place(); err != nil {
		return i, err
	}
	i.ctx, i.stop = context.WithCancel(context.Background())
	i.work.Go(func() { i.ctl.read(i.ctx, i.received) })
	i.alarm.init(i.tick)
	return i, nil
}

func (i *Initiator) now() time.Duration { return time.Since(i.start) }

// Post gives requests to a target, in order, and answers how many were taken.
// Each of those has exactly one completion. If the target is attached they are
// posted at once, in one crossing into C and without allocating; if not, they
// are kept until it is.
func (i *Initiator) Post(p *Peer, rs ...Request) (int, error) {
	if err := p.check(&i.cfg, rs); err != nil {
		return 0, err
	}
	if i.hw != nil {
		return i.hw.post(p, rs)
	}
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return 0, opError("post to", p.addr.String(), ErrClosed)
	}
	if x := i.core.admit(p); x != nil {
		if l := &i.lanes[x.index]; l.n+len(rs) <= len(l.ring) {
			packets := l.add(x, rs)
			n, err := l.batch.Post()
			i.posted(x, l, rs, n, packets)
			i.core.stats.Hits += uint64(n)
			i.mu.Unlock()
			return n, err
		}
	}
	return i.keep(p, rs)
}

// keep holds requests until their target is attached. It is called with mu held
// and releases it.
func (i *Initiator) keep(p *Peer, rs []Request) (int, error) {
	if !i.core.knows(p) {
		i.mu.Unlock()
		return 0, opError("post to", p.addr.String(), ErrClosed)
	}
	n := min(len(rs), i.cfg.MaxPending-len(p.queue))
	p.queue = append(p.queue, rs[:n]...)
	i.core.enqueue(p, n, i.now())
	i.perform()
	if n < len(rs) {
		return n, opError("post to", p.addr.String(), fmt.Errorf("%w: %d requests wait", ErrQueueFull, i.cfg.MaxPending))
	}
	return n, nil
}

// add puts requests into the batch of an attached context that has room, and
// answers how many packets they are.
func (l *lane) add(x *initiatorContext, rs []Request) int {
	packets := 0
	for k := range rs {
		rs[k].add(l.batch, uint64(x.index))
		packets += rs[k].packets(l.mtu)
	}
	return packets
}

// posted notes the first n of rs, which the device has taken.
func (i *Initiator) posted(x *initiatorContext, l *lane, rs []Request, n, packets int) {
	for k := range n {
		at := l.head + l.n
		if at >= len(l.ring) {
			at -= len(l.ring)
		}
		l.ring[at] = posted{rs[k].ID, rs[k].Op}
		l.n++
	}
	if n < len(rs) {
		for k := range rs[n:] {
			packets -= rs[n+k].packets(l.mtu)
		}
	}
	if n > 0 {
		i.core.posted(x, n, packets)
	}
}

// postPending posts what waits for the target of an attached context.
func (i *Initiator) postPending(x *initiatorContext) {
	p := x.peer
	l := &i.lanes[x.index]
	for len(p.queue) > 0 && x.state == ctxAttached && l.n < len(l.ring) {
		n := min(len(p.queue), len(l.ring)-l.n, i.cfg.Quota)
		packets := l.add(x, p.queue[:n])
		took, err := l.batch.Post()
		i.posted(x, l, p.queue[:n], took, packets)
		if err != nil {
			// What was wrong with one is not told apart from the others.
			for _, r := range p.queue[took:n] {
				i.done = append(i.done, Completion{r.ID, p, r.Op, opError("post to", p.addr.String(), err)})
			}
			i.park.wake()
		}
		p.queue = append(p.queue[:0], p.queue[n:]...)
		p.pending = int32(len(p.queue))
	}
	if len(p.queue) == 0 {
		p.queue = nil
	}
}

// perform carries out what the state machine wants. It is called with mu held
// and releases it. What concerns requests is done before anybody else sees the
// state; what takes time, or sends, without the lock: a context is nobody
// else's while its queue pair changes.
func (i *Initiator) perform() {
	if i.closed || len(i.core.actions) == 0 && !i.core.retime {
		i.mu.Unlock()
		return
	}
	i.acting.Add(1)
	defer i.acting.Done()
	for !i.closed {
		i.urgent()
		later := i.core.actions
		i.core.actions, i.spare = i.spare, nil
		if len(later) == 0 {
			i.core.actions, i.spare = later, i.core.actions
			break
		}
		i.mu.Unlock()
		for k := range later {
			if a := later[k]; overlap && a.kind == actJoin {
				i.work.Go(func() {
					i.later(&a)
					i.mu.Lock()
					i.perform()
				})
				continue
			}
			i.later(&later[k])
		}
		i.mu.Lock()
		i.spare = later[:0]
	}
	if !i.closed {
		i.core.retime = false
		i.alarm.set(i.core.next(), i.now())
	}
	i.mu.Unlock()
}

// overlap says that queue pairs are connected beside everything else: the kernel
// waits in the middle of it, for a work queue that looks up the neighbour, and
// whoever polls need not. With one CPU it would only be dearer.
var overlap = runtime.NumCPU() > 1

// urgent carries out the actions that must come before mu is released.
func (i *Initiator) urgent() {
	rest := i.core.actions[:0]
	for k := range i.core.actions {
		if a := &i.core.actions[k]; !i.atOnce(a) {
			rest = append(rest, *a)
		}
	}
	i.core.actions = rest
}

func (i *Initiator) atOnce(a *action) bool {
	switch a.kind {
	case actReady:
		i.postPending(a.ctx)
		i.attached(a.peer, nil)
	case actAbort:
		if err := i.lanes[a.ctx.index].qp.ToError(); err != nil {
			i.cfg.Logger.Error("dc: abort session", "err", err)
		}
	case actFail:
		p := a.peer
		i.attached(p, opError("connect to", p.addr.String(), a.err))
		for _, r := range p.queue {
			i.done = append(i.done, Completion{r.ID, p, r.Op, opError("connect to", p.addr.String(), a.err)})
		}
		p.queue = nil
		i.park.wake()
	default:
		return false
	}
	return true
}

func (i *Initiator) later(a *action) {
	switch a.kind {
	case actLookup:
		i.work.Go(func() { i.lookUp(a.peer) })
	case actSend:
		m := a.m
		m.from, m.mtu = i.self, i.ctl.mtu
		if m.kind == msgConnect {
			m.qpn = i.lanes[m.context].qp.Num()
		}
		i.ctl.send(a.to, &m)
	case actJoin:
		l := &i.lanes[a.ctx.index]
		rtr := responderStep(i.ctl, &a.m, a.m.psn)
		l.mtu = rtr.Attr.PathMTU.Bytes()
		steps := []verbs.ModifyStep{verbs.ResetStep(), l.qp.InitStep(), rtr, requesterStep(i.ctl, &i.cfg, a.ctx.session.psn)}
		if !a.again {
			steps = steps[2:]
		}
		err := l.qp.ModifySteps(steps...)
		i.mu.Lock()
		i.core.joined(a.ctx, err, i.now())
		i.urgent()
		i.mu.Unlock()
	case actReset:
		qp := i.lanes[a.ctx.index].qp
		if err := qp.ModifySteps(verbs.ResetStep(), qp.InitStep()); err != nil {
			i.cfg.Logger.Error("dc: initiator context lost", "err", err)
			return
		}
		i.mu.Lock()
		i.core.resetDone(a.ctx, i.now())
		i.urgent()
		i.mu.Unlock()
	}
}
