package dc

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

const (
	controlRecvs  = 256
	controlSends  = 64
	signalEvery   = 16
	repostEvery   = 16
	routeHeader   = 40 // in front of each datagram
	controlStride = 256

	generationShift = 16
)

// ControlConfig says how to make a control queue pair. PD must be set.
type ControlConfig struct {
	PD *verbs.PD
	// GID is the local address; the zero value means what an empty
	// [verbs.GIDQuery] finds.
	GID verbs.GIDEntry
	// Handles is how many address handles are kept, the most recently used ones; 0
	// means 4096.
	Handles int
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
	gid     verbs.GIDEntry
	lid     uint16
	mtu     verbs.MTU
	at      wire.ControlAddress
	recvCQ  *verbs.CQ
	sendCQ  *verbs.CQ
	qp      *verbs.QP
	mr      *verbs.MR
	log     *slog.Logger
	cancel  context.CancelFunc
	work    sync.WaitGroup
	handles handles

	malformed atomic.Uint64 // messages of nobody, or not of whom they name
	dropped   atomic.Uint64 // messages that could not be sent

	maxReads, maxInitReads uint8 // READs and atomics outstanding, as target and as initiator

	mu    sync.Mutex // of what sends
	batch *verbs.Batch
	next  int
	busy  int // sends whose completion is not known
	wcs   [16]verbs.WC

	reading    sync.Mutex // of what receives
	recv       *verbs.RecvBatch
	generation uint64 // counts restarts, and is in the numbers of receives: those of an earlier one are over

	routing sync.RWMutex
	routes  map[uint64]func(*wire.Message) // by the initiator's id
	rest    func(*wire.Message)            // of targets
	refs    int
	closed  bool
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
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Handles <= 0 {
		cfg.Handles = 4096
	}
	c = &Control{cfg: cfg, pd: cfg.PD, gid: cfg.GID, log: cfg.Logger, routes: make(map[uint64]func(*wire.Message)), cancel: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.destroy())
			c = nil
		}
	}()
	dev := cfg.PD.Device()
	if c.gid == (verbs.GIDEntry{}) {
		if c.gid, err = dev.FindGID(verbs.GIDQuery{}); err != nil {
			return c, err
		}
	}
	port, err := dev.Port(c.gid.Port)
	if err != nil {
		return c, err
	}
	c.lid, c.mtu = port.LID, port.ActiveMTU
	attr := dev.Attr()
	c.maxReads = uint8(min(attr.MaxReadAtomic, 16))
	c.maxInitReads = min(c.maxReads, uint8(min(attr.MaxInitRead, 16)))
	c.handles.init(c, cfg.Handles)
	if c.recvCQ, err = dev.CreateCQ(verbs.CQConfig{Depth: controlRecvs}); err != nil {
		return c, err
	}
	if c.sendCQ, err = dev.CreateCQ(verbs.CQConfig{Depth: controlSends, PollOnly: true}); err != nil {
		return c, err
	}
	// The Q_Key keeps packets of earlier owners of the queue pair number away.
	qkey := rand.Uint32() & 0x7fffffff
	if c.qp, err = cfg.PD.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: c.sendCQ, RecvCQ: c.recvCQ, GID: c.gid, QKey: qkey | 1,
		MaxSendWR: controlSends, MaxRecvWR: controlRecvs}); err != nil {
		return c, err
	}
	if c.mr, err = cfg.PD.AllocMR((controlRecvs+controlSends)*controlStride, verbs.MRConfig{}); err != nil {
		return c, err
	}
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
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.work.Go(func() { c.read(ctx) })
	c.work.Go(func() { c.handles.resolve(ctx) })
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
	c.busy = 0
	if err := c.qp.ToReset(); err != nil {
		return err
	}
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

// broken restarts the queue pair, unless somebody else has since that generation.
func (c *Control) broken(generation uint64) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return
	}
	if err := c.restart(); err != nil {
		c.log.Error("dc: control queue", "err", err)
	}
}

func (c *Control) post(id uint64) {
	c.recv.Recv(c.generation<<generationShift|id, c.mr.SGE(int(id)*controlStride, controlStride))
}

// send sends one message, or drops it: messages may be lost in any case. It does
// not wait for anything.
func (c *Control) send(to wire.ControlAddress, m *wire.Message) {
	m.From, m.MTU = c.at, wire.MTU(c.mtu)
	h := c.handles.get(to)
	if h == nil {
		c.handles.want(to, m)
		return
	}
	c.sendBy(h, to, m)
	c.handles.put(h)
}

func (c *Control) sendBy(h *handle, to wire.ControlAddress, m *wire.Message) {
	c.mu.Lock()
	if c.busy > controlSends/2 && !c.reap() {
		generation := c.generation
		c.mu.Unlock()
		c.dropped.Add(1)
		if c.qp.State() == verbs.StateError {
			c.log.Warn("dc: control queue restarted")
			c.work.Go(func() { c.broken(generation) })
		}
		return
	}
	defer c.mu.Unlock()
	off := (controlRecvs + c.next) * controlStride
	n := m.Encode(c.mr.Bytes()[off:])
	var flags verbs.SendFlags
	if c.next%signalEvery == signalEvery-1 {
		flags = verbs.Signaled
	}
	c.batch.SendTo(0, flags, verbs.Dest{AH: h.ah, QPN: to.QPN, QKey: to.QKey}, c.mr.SGE(off, n))
	if _, err := c.batch.Post(); err != nil {
		c.log.Warn("dc: control message not sent", "to", verbs.GID(to.GID), "err", err)
		c.dropped.Add(1)
		return
	}
	c.next = (c.next + 1) % controlSends
	c.busy++
}

// reap takes the completions of earlier sends, and tells whether there is room.
// A device may give up a queue pair whose packet it could not send, because the
// neighbour was unknown, say.
func (c *Control) reap() bool {
	for c.busy > 0 {
		n, err := c.sendCQ.Poll(c.wcs[:])
		if err != nil {
			return false
		}
		for i := range c.wcs[:n] {
			if c.wcs[i].Err() != nil {
				c.log.Warn("dc: control queue", "err", c.wcs[i].Err())
				return false
			}
		}
		c.busy -= n * signalEvery
		if n < len(c.wcs) {
			break
		}
	}
	return c.busy < controlSends
}

// read takes messages until ctx ends.
func (c *Control) read(ctx context.Context) {
	var wcs [16]verbs.WC
	for {
		n, err := c.recvCQ.Wait(ctx, wcs[:])
		if err != nil {
			if ctx.Err() == nil {
				c.log.Error("dc: control queue", "err", err)
			}
			return
		}
		c.reading.Lock()
		c.take(wcs[:n])
		c.reading.Unlock()
	}
}

// drain takes what has come and was not read yet.
func (c *Control) drain() {
	c.reading.Lock()
	defer c.reading.Unlock()
	var wcs [16]verbs.WC
	for range 2 * controlRecvs / len(wcs) {
		n, err := c.recvCQ.Poll(wcs[:])
		if n == 0 || err != nil {
			return
		}
		c.take(wcs[:n])
	}
}

// take passes messages on, and posts their receives again.
func (c *Control) take(wcs []verbs.WC) {
	flushed := false
	var m wire.Message
	for i := range wcs {
		w := &wcs[i]
		if w.ID()>>generationShift != c.generation {
			continue
		}
		if w.Err() != nil {
			flushed = true
			break
		}
		id := w.ID() & (1<<generationShift - 1)
		packet := c.mr.Bytes()[int(id)*controlStride:][:w.Len()]
		if len(packet) < routeHeader || !m.Decode(packet[routeHeader:]) || m.From.QPN != w.SrcQP() || !comesFrom(packet, w.HasGRH(), w.SLID(), &m.From) || !c.pass(&m) {
			c.malformed.Add(1)
		}
		clear(packet[:min(routeHeader, len(packet))])
		c.post(id)
	}
	if flushed {
		c.mu.Lock()
		err := c.restart()
		c.mu.Unlock()
		if err != nil {
			c.log.Error("dc: control queue", "err", err)
		}
		return
	}
	if c.recv.Len() >= repostEvery || len(wcs) == 16 {
		if _, err := c.recv.Post(); err != nil {
			c.log.Error("dc: control queue", "err", err)
		}
	}
}

// comesFrom compares the sender that a message names with the one that the network
// names: answers go nowhere else. Devices leave the first half of the header
// undefined for a packet of IPv4; it was cleared before.
func comesFrom(packet []byte, routed bool, slid uint16, from *wire.ControlAddress) bool {
	const header, source = 20, 32
	switch g := verbs.GID(from.GID); {
	case !routed:
		return slid == from.LID
	case g.Addr().Is4():
		return packet[header]>>4 == 4 && [4]byte(packet[source:source+4]) == [4]byte(g[12:])
	default:
		return packet[0]>>4 == 6 && wire.GID(packet[8:24]) == from.GID
	}
}

// pass gives a message to the one it is for.
func (c *Control) pass(m *wire.Message) bool {
	c.routing.RLock()
	f := c.routes[m.Sender]
	if f == nil {
		f = c.rest
	}
	c.routing.RUnlock()
	if f == nil {
		return false
	}
	f(m)
	return true
}

// join brings an initiator its messages.
func (c *Control) join(id uint64, f func(*wire.Message)) error {
	c.routing.Lock()
	defer c.routing.Unlock()
	if c.closed {
		return opError("use", "control queue", ErrClosed)
	}
	c.routes[id] = f
	c.refs++
	return nil
}

// part ends that. Messages that are being passed on may still come.
func (c *Control) part(id uint64) {
	c.routing.Lock()
	defer c.routing.Unlock()
	if c.routes[id] != nil {
		delete(c.routes, id)
		c.refs--
	}
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
	var errs []error
	if c.qp != nil {
		errs = append(errs, c.qp.Close())
	}
	errs = append(errs, c.handles.close())
	if c.mr != nil {
		errs = append(errs, c.mr.Close())
	}
	for _, cq := range []*verbs.CQ{c.sendCQ, c.recvCQ} {
		if cq != nil {
			errs = append(errs, cq.Close())
		}
	}
	return errors.Join(errs...)
}
