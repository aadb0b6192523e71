package dc

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/internal/closing"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

const (
	controlRecvs  = 256
	controlSends  = 64
	repostEvery   = 16
	routeHeader   = 40 // in front of each datagram
	controlStride = 256

	generationShift = 16

	maxHandles = 4096 // address handles that are kept, the most recently used ones
)

// ControlConfig says how to make a control queue pair. PD must be set.
type ControlConfig struct {
	PD *verbs.PD
	// GID is the local address; the zero value means what an empty
	// [verbs.GIDQuery] finds.
	GID verbs.GIDEntry
	// TrafficClass of the messages: DSCP and ECN bits on RoCE v2.
	TrafficClass uint8
	Logger       *slog.Logger // nil: silent
}

// Control sends and receives the control messages of initiators by one UD queue
// pair. Initiators of the software back end make one each unless they are given
// one that they share. Its methods may be called from any number of goroutines.
type Control struct {
	cfg     ControlConfig
	pd      *verbs.PD
	gid     localGID
	lid     uint16
	mtu     verbs.MTU
	at      wire.ControlAddress
	recvCQ  *verbs.CQ
	sendCQ  *verbs.CQ
	qp      *verbs.QP
	mr      *verbs.MR
	made    closing.Stack
	log     *slog.Logger
	ctx     context.Context // of what goes on in the background
	cancel  context.CancelFunc
	work    sync.WaitGroup
	handles handles

	malformed atomic.Uint64 // without a recipient, or not from the sender that they name
	dropped   atomic.Uint64 // messages that could not be sent

	maxReads, maxInitReads uint8 // READs and atomics outstanding, as target and as initiator

	mu    sync.Mutex // of what sends
	batch *verbs.Batch
	// Sends are numbered. The device has reported the end of those below gone.
	posted, gone atomic.Uint64 // written with mu held
	wcs          [16]verbs.WC

	reading    sync.Mutex // of what receives
	watch      watch
	recv       *verbs.RecvBatch
	generation uint64 // counts restarts, and is in the numbers of receives: those of an earlier one are over

	routing sync.RWMutex
	routes  map[uint64]controlUser // by the initiator's id
	rest    controlUser            // the target
	refs    int
	closed  bool
}

// controlUser is an initiator or a target that a control queue pair serves.
type controlUser struct {
	received func(*wire.Message)
	moved    func() // the local GID has another place in the GID table
}

// NewControl makes a control queue pair for initiators to share.
func NewControl(cfg ControlConfig) (*Control, error) {
	if cfg.PD == nil {
		return nil, opError("make", "control queue", errors.Join(verbs.ErrAttributes, errors.New("PD is missing")))
	}
	c, err := newControl(cfg)
	return c, opError("make", "control queue", err)
}

func newControl(cfg ControlConfig) (c *Control, err error) {
	cfg.Logger = logsOf(cfg.Logger)
	c = &Control{cfg: cfg, pd: cfg.PD, log: cfg.Logger, routes: make(map[uint64]controlUser)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, c.destroy())
			c = nil
		}
	}()
	dev := cfg.PD.Device()
	if err := c.gid.init(dev, cfg.GID, func() { c.work.Go(c.moved) }); err != nil {
		return c, err
	}
	gid := c.gid.entry()
	changes := driver.FollowGID(c.ctx, dev, gid, nil)
	port, err := dev.Port(gid.Port)
	if err != nil {
		return c, err
	}
	c.lid = port.LID
	if c.mtu, err = dev.LocalMTU(gid); err != nil {
		return c, err
	}
	attr := dev.Attr()
	c.maxReads = uint8(min(attr.MaxReadAtomic, 16))
	c.maxInitReads = min(c.maxReads, uint8(min(attr.MaxInitRead, 16)))
	c.handles.init(c, maxHandles)
	c.made.Add(closing.Func(c.handles.close))
	if c.recvCQ, err = dev.CreateCQ(verbs.CQConfig{Depth: controlRecvs}); err != nil {
		return c, err
	}
	c.made.Add(c.recvCQ)
	if c.sendCQ, err = dev.CreateCQ(verbs.CQConfig{Depth: controlSends, PollOnly: true}); err != nil {
		return c, err
	}
	c.made.Add(c.sendCQ)
	if c.mr, err = cfg.PD.AllocMR((controlRecvs+controlSends)*controlStride, verbs.MRConfig{}); err != nil {
		return c, err
	}
	c.made.Add(c.mr)
	// The Q_Key keeps packets of earlier owners of the queue pair number away.
	qkey := rand.Uint32() & 0x7fffffff
	if c.qp, err = cfg.PD.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: c.sendCQ, RecvCQ: c.recvCQ, GID: gid, QKey: qkey | 1,
		MaxSendWR: controlSends, MaxRecvWR: controlRecvs}); err != nil {
		return c, err
	}
	c.made.Add(c.qp)
	if c.batch, err = c.qp.NewBatch(1); err != nil {
		return c, err
	}
	if c.recv, err = c.qp.NewRecvBatch(controlRecvs); err != nil {
		return c, err
	}
	if err := c.fill(); err != nil {
		return c, err
	}
	e, err := c.qp.Endpoint()
	if err != nil {
		return c, err
	}
	c.at = wire.ControlAddress{GID: wire.GID(e.GID), QPN: e.QPN, QKey: e.QKey, LID: e.LID}
	c.watch.init(c.recvCQ, &c.reading)
	c.work.Go(c.read)
	c.work.Go(func() { c.follow(changes) })
	return c, nil
}

// fill posts all receives and brings the queue pair to work.
func (c *Control) fill() error {
	for i := range controlRecvs {
		c.post(uint64(i))
	}
	if _, err := c.recv.Post(); err != nil {
		return err
	}
	return c.qp.Activate()
}

// restart makes a queue pair in error work again, with the same number. What
// was in it is lost, as messages may be. It is called with reading and mu held.
func (c *Control) restart() error {
	c.generation++
	if err := c.qp.Quiesce(); err != nil {
		return err
	}
	c.gone.Store(c.posted.Load())
	c.handles.completed()
	for _, cq := range []*verbs.CQ{c.sendCQ, c.recvCQ} {
		for {
			n, err := cq.Poll(c.wcs[:])
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	c.recv.Reset()
	if err := c.qp.Init(); err != nil {
		return err
	}
	return c.fill()
}

// restartPause is how long after a restart that failed another one is tried.
const restartPause = 50 * time.Millisecond

// broken restarts the queue pair, unless another goroutine has since that generation,
// and again until it works: without it no peer can be reached.
func (c *Control) broken(generation uint64) {
	for {
		c.reading.Lock()
		c.mu.Lock()
		mine := c.generation == generation
		var err error
		if mine {
			err = c.restart()
			generation = c.generation
		}
		c.mu.Unlock()
		c.reading.Unlock()
		if !mine || err == nil {
			return
		}
		c.log.Error("dc: control queue", "err", err)
		select {
		case <-time.After(restartPause):
		case <-c.ctx.Done():
			return
		}
	}
}

// follow drops what was made with an address that has changed, on this host or on the way.
func (c *Control) follow(changes iter.Seq2[verbs.GIDEntry, error]) {
	for now, err := range changes {
		if err != nil {
			c.log.Warn("dc: the local address is gone", "gid", c.gid.entry().GID, "err", err)
			continue
		}
		if c.gid.put(now) {
			c.moved()
		} else {
			c.handles.expire()
		}
	}
}

// moved: the local GID has another place in the GID table. Queue pairs and address handles
// that were made with the one before reach nothing any more. Handles keep that place from
// being used again, so they are closed at once, for which the sends that use them are
// given up.
func (c *Control) moved() {
	c.log.Info("dc: the local address has moved in the GID table", "gid", c.gid.entry())
	c.handles.expire()
	c.mu.Lock()
	generation := c.generation
	c.mu.Unlock()
	c.broken(generation)
	c.routing.RLock()
	users := []controlUser{c.rest}
	for _, u := range c.routes {
		users = append(users, u)
	}
	c.routing.RUnlock()
	for _, u := range users {
		if u.moved != nil {
			u.moved()
		}
	}
}

// join brings an initiator its messages.
func (c *Control) join(id uint64, u controlUser) error {
	c.routing.Lock()
	defer c.routing.Unlock()
	if c.closed {
		return opError("use", "control queue", ErrClosed)
	}
	c.routes[id] = u
	c.refs++
	return nil
}

// part ends that. Messages that are being passed on may still come, and the
// initiator may still send, until it leaves.
func (c *Control) part(id uint64) {
	c.routing.Lock()
	defer c.routing.Unlock()
	delete(c.routes, id)
}

// leave: an initiator that has parted sends no more.
func (c *Control) leave() {
	c.routing.Lock()
	defer c.routing.Unlock()
	c.refs--
}

// Close ends everything. It is refused with [ErrInUse] while initiators use it.
// Closing twice is not an error.
func (c *Control) Close() error {
	c.routing.Lock()
	if c.refs > 0 {
		c.routing.Unlock()
		return opError("close", "control queue", ErrInUse)
	}
	closed := c.closed
	c.closed = true
	c.routing.Unlock()
	if closed {
		return nil
	}
	return c.destroy()
}

func (c *Control) destroy() error {
	c.cancel()
	c.work.Wait()
	c.settle()
	return c.made.Close()
}
