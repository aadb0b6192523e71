package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// CallerConfig describes a client of an agent.
type CallerConfig struct {
	PD     *verbs.PD
	Layout Layout
	Limits ChainLimits // the agent's
	Client uint64      // as in [Agent.Attach]
	// Connect returns a queue pair that is connected to one that the agent has
	// attached as Client, with room for twice Limits.Window sends and receives,
	// and the completion queue of both, which must have no other user. It is called
	// by NewCaller, and again after a failure of the queue pair: the chains
	// without a reply are then issued again, unless the agent is another one,
	// which cannot tell whether they were executed ([ErrOutcomeUnknown]). The Caller
	// closes no queue pair; from the next call of Connect on, the old one may be closed.
	// An error of Connect ends the caller.
	Connect func(ctx context.Context) (*verbs.QP, *verbs.CQ, error)
	// Reissue is when a chain without a reply is issued again on the same
	// connection; 0 means 2 s.
	Reissue time.Duration
}

// Caller sends chains to a target's agent. It may be used by several
// goroutines; up to [ChainLimits.Window] chains are under way at a time.
type Caller struct {
	cfg    CallerConfig
	mr     *verbs.MR // requests, then receive buffers
	free   chan *callPlace
	dialed *agentDialer // the connection, if it is the caller's own

	closing sync.Once
	closed  error // of Close

	stop context.CancelFunc
	done chan struct{} // closed when no more replies will come
	work sync.WaitGroup

	asks chan struct{} // as many as may wait for a turn at a time

	mu     sync.Mutex
	places []callPlace
	link   callerLink
	agent  uint32 // the one that replied last; 0: none did
	err    error  // why done is closed
}

// callerLink is a connection.
type callerLink struct {
	qp    *verbs.QP
	cq    *verbs.CQ
	sends *verbs.Batch
	recvs *verbs.RecvBatch
	conn  uint32
}

// callPlace is one of the chains that may be under way. Its sequences are its
// index modulo the window, like the agent's entries.
type callPlace struct {
	index   int
	seq     uint64
	length  int  // of the request
	renew   bool // the request may be issued again, to any agent
	state   placeState
	sending int // SENDs that the device may still read from
	reply   []byte
	ready   chan struct{} // the reply is there
	again   *time.Timer
}

type placeState uint8

const (
	placeFree      placeState = iota
	placeWaits                // a call waits for the reply
	placeAbandoned            // no call does any more, but the reply may come
	placeReplied              // the reply is the call's until it releases the place
	placeEnds                 // free when the device needs the request no more
)

// NewCaller makes a client of an agent and connects it.
func NewCaller(ctx context.Context, cfg CallerConfig) (*Caller, error) {
	if err := ctx.Err(); err != nil {
		return nil, opErrorf("make caller", err)
	}
	cfg.Layout = cfg.Layout.withDefaults()
	if err := cfg.Layout.check(); err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.withDefaults(cfg.Layout)
	if err := cfg.Limits.check(); err != nil {
		return nil, err
	}
	if cfg.PD == nil || cfg.Connect == nil {
		return nil, fmt.Errorf("lockoffload: make caller: PD and Connect are needed: %w", ErrConfig)
	}
	if cfg.Reissue <= 0 {
		cfg.Reissue = 2 * time.Second
	}
	window, message := cfg.Limits.Window, cfg.Limits.Message
	mr, err := cfg.PD.AllocMR(3*window*message, verbs.MRConfig{})
	if err != nil {
		return nil, err
	}
	c := &Caller{
		cfg: cfg, mr: mr, free: make(chan *callPlace, window), done: make(chan struct{}), places: make([]callPlace, window),
		asks: make(chan struct{}, max(1, window/2)),
	}
	for i := range c.places {
		p := &c.places[i]
		*p = callPlace{index: i, seq: uint64(i), reply: make([]byte, 0, message), ready: make(chan struct{}, 1), again: time.NewTimer(time.Hour)}
		p.again.Stop()
		c.free <- p
	}
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(err, mr.Close())
	}
	ctx, c.stop = context.WithCancel(context.Background())
	c.work.Go(func() { c.serve(ctx) })
	return c, nil
}

// Close ends the caller; chains under way end with [ErrOutcomeUnknown]. Its
// queue pair goes to [verbs.StateError]; Close closes it only if the caller dialed
// ([DialAgent]). Close may be called again.
func (c *Caller) Close() error {
	c.closing.Do(func() {
		c.stop()
		c.work.Wait()
		c.closed = c.mr.Close()
		if c.dialed != nil {
			c.closed = errors.Join(c.closed, c.dialed.now.close())
		}
	})
	return c.closed
}

// gone reports whether the agent can no longer be reached.
func (c *Caller) gone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Do has the agent execute a chain, which takes one round trip, and waits for
// the reply. With [ErrNotAcquired], [ErrBusy], [ErrVersionMismatch] and [ErrRecord]
// nothing was changed; with [ErrOutcomeUnknown] the connection, or the wait, ended
// before the reply. After ErrVersionMismatch, accesses that read have been performed all
// the same.
//
// ch and its memory are the caller's again when Do returns.
func (c *Caller) Do(ctx context.Context, ch *Chain) (Result, error) {
	res, err := c.do(ctx, ch)
	if err != nil {
		return res, opError("chain on", ch.Slot, err)
	}
	return res, nil
}

func (c *Caller) do(ctx context.Context, ch *Chain) (res Result, err error) {
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := ch.check(c.cfg.Layout, c.cfg.Limits.Message); err != nil {
		return res, err
	}
	p, _, err := c.exchange(ctx, nil, ch, ch.deadline(ctx))
	if err != nil {
		return res, err
	}
	res, err = ch.take(p.reply)
	c.release(p)
	return res, err
}

// callRequest is a request that a place may have under way.
type callRequest interface {
	// request writes the request into dst, which is large enough, and returns its length.
	request(dst []byte, client, seq uint64, deadline, agent uint32) int
	// again reports whether the request may be sent to another agent after one has
	// received it.
	again() bool
}

// exchange sends a request and waits for its reply, until lost is closed. The reply is in
// the place, which the caller must release. seq is 0 if nothing was sent.
func (c *Caller) exchange(ctx context.Context, lost <-chan struct{}, r callRequest, deadline uint32) (p *callPlace, seq uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	select {
	case p = <-c.free: // as a rule, and this is cheaper than to wait for all three
	default:
		select {
		case p = <-c.free:
		case <-lost:
			return nil, 0, ErrLost
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-c.done:
			return nil, 0, c.err
		}
	}
	if seq, err = c.issue(p, r, deadline); err != nil {
		return nil, 0, err
	}
	p.again.Reset(c.cfg.Reissue)
	defer p.again.Stop()
	for {
		select {
		case <-p.ready:
			return p, seq, nil
		case <-p.again.C:
			c.reissue(p)
			p.again.Reset(c.cfg.Reissue)
		case <-lost:
			return nil, seq, c.abandon(p, ErrLost)
		case <-ctx.Done():
			return nil, seq, c.abandon(p, ctx.Err())
		case <-c.done:
			return nil, seq, fmt.Errorf("%w: %w", ErrOutcomeUnknown, c.err)
		}
	}
}

// deadline returns the deadline in microseconds, rounded up: 0 means none.
func (ch *Chain) deadline(ctx context.Context) uint32 {
	d := ch.Deadline
	if end, ok := ctx.Deadline(); d == 0 && ok {
		d = max(time.Until(end), 1)
	}
	return uint32(min((d+time.Microsecond-1)/time.Microsecond, math.MaxUint32))
}

func (ch *Chain) again() bool { return false }

func (ch *Chain) request(dst []byte, client, seq uint64, deadline, agent uint32) int {
	r := wire.ChainRequest{
		Client: client, Seq: seq, Slot: uint32(ch.Slot), Shared: ch.Shared, Tries: uint32(ch.Tries), Deadline: deadline, Agent: agent,
	}
	b := r.AppendTo(dst[:0])
	for i := range ch.Accesses {
		a := &ch.Accesses[i]
		w := wire.Access{Kind: wire.AccessKind(a.Kind), Record: uint16(a.Record)}
		switch a.Kind {
		case AccessWrite:
			w.Data = a.Data
		case AccessCompare:
			w.Version = a.Version
		}
		b = wire.AppendAccess(b, w)
	}
	return len(wire.SealMessage(b, len(ch.Accesses)))
}

// take copies a reply's results into the chain.
func (ch *Chain) take(msg []byte) (Result, error) {
	r, err := wire.DecodeReply(msg)
	if err != nil {
		return Result{Protocol: ProtocolAgent}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	res := Result{Protocol: ProtocolAgent, Tries: int(r.Tries)}
	if err := statusError(r.Status); err != nil && r.Ops.N == 0 {
		return res, err
	}
	if r.Ops.N != len(ch.Accesses) {
		return res, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ErrMessage)
	}
	for i := range ch.Accesses {
		a, got := &ch.Accesses[i], r.Ops.Next()
		if wire.AccessKind(a.Kind) != got.Kind || a.Record != int(got.Record) {
			return res, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ErrMessage)
		}
		a.Version, res.Version = got.Version, got.Version
		if a.Kind == AccessRead {
			a.Data = append(a.Data[:0], got.Data...)
		}
	}
	return res, statusError(r.Status)
}

func statusError(s wire.ChainStatus) error {
	switch s {
	case wire.ChainDone:
		return nil
	case wire.ChainDiffers:
		return ErrVersionMismatch
	case wire.ChainNotAcquired:
		return ErrNotAcquired
	case wire.ChainBusy:
		return ErrBusy
	case wire.ChainRefused:
		return ErrConfig
	case wire.ChainDamaged:
		return ErrRecord
	}
	return ErrOutcomeUnknown
}
