package verbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
	"github.com/goverbs/goverbs/verbs/internal/pollfd"
)

// CQConfig configures a completion queue.
type CQConfig struct {
	// Depth is how many completions the queue holds at least; 0 means 256. A
	// queue that overruns is broken for good ([ErrOverrun]): give it room for
	// every signaled work request and receive that may be outstanding.
	Depth int
	// Vector chooses the completion vector (interrupt), below
	// [DeviceAttr.CompletionVecs].
	Vector int
	// Spin is how often Wait polls before it arms the queue and parks the goroutine;
	// negative means not at all. 0 means 64 times. On a machine with one CPU it means 4
	// times, and each time the CPU is given up to what the completion may wait for,
	// unless that was in vain lately. One poll of an empty queue takes some 10 ns.
	Spin int
	// PollFor is for how long a goroutine that waits polls before it parks, once at each
	// scheduling point, in place of spinning; 0 means not at all. Other goroutines run
	// meanwhile, those first that it has woken. On a machine with one CPU it spins as well. Parking and waking cost several system calls. If the CPUs have gone to
	// sleep, or are virtual, that is many times what a READ takes. Polling costs the time
	// of a CPU that has nothing else to do.
	PollFor time.Duration
	// SolicitedOnly wakes Wait only for completions of receives for which the sender
	// requested it ([Solicited]) and for failures.
	SolicitedOnly bool
	// Fields requests an extended queue: its completions have these fields besides the
	// usual ones: see [CQ.PollEx]. All other calls work as ever.
	Fields WCFields
	// SingleThreaded leaves out the queue's lock, if the provider can. The program must
	// then ensure that no two goroutines poll or wait at the same time.
	SingleThreaded bool
	// IgnoreOverrun leaves out the device's check that the queue has room: completions
	// that do not fit silently overwrite others. It is for programs that count.
	// SingleThreaded and IgnoreOverrun make the queue an extended one, as Fields does.
	IgnoreOverrun bool
	// PollOnly saves the file descriptor of a queue that is never waited on.
	PollOnly bool
}

// CQ is a completion queue. Any number of goroutines may call Poll; one at a time can
// Wait.
type CQ struct {
	life      life.Life
	dev       *Device
	cq        cgo.CQ
	sizing    sync.Mutex
	depth     int // under sizing
	spin      uint32
	yielding  yieldPolicy
	pollFor   time.Duration
	solicited bool
	notify    cgo.Notify
	path      cgo.PollPath
	fields    WCFields
	overrun   atomic.Bool
	dead      atomic.Bool // the device is

	routing sync.Mutex
	senders []*QP                  // queue pairs with sends that complete here, under routing
	shares  int                    // queue pairs with shared receive queues, under routing
	router  atomic.Pointer[router] // while requesters take the completions
	idle    *router                // otherwise, if there have been some

	kept     atomic.Bool // there have been queue pairs with a keep-alive
	keptNow  int         // so many, under routing
	keepRoom int         // and for so many there is room, under routing
	stash    atomic.Pointer[stash]

	channel cgo.CompChannel
	wait    waiter
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(cfg CQConfig) (*CQ, error) {
	if cfg.Depth == 0 {
		cfg.Depth = 256
	}
	if cfg.Depth < 0 || cfg.Depth > d.attr.MaxCQE {
		return nil, opError("create cq on", d.name, ErrAttributes, "depth ", cfg.Depth, ", the device allows ", d.attr.MaxCQE)
	}
	if vectors := d.attr.CompletionVecs; cfg.Vector < 0 || cfg.Vector >= max(vectors, 1) {
		return nil, opError("create cq on", d.name, ErrAttributes, "vector ", cfg.Vector, " of ", vectors)
	}
	if cfg.SingleThreaded || cfg.IgnoreOverrun {
		cfg.Fields |= FieldsStandard
	}
	if cfg.Fields&fieldSender != 0 {
		if e, err := d.EFA(); err != nil || !e.Sender {
			return nil, opError("create cq on", d.name, ErrUnsupported, "FieldSender requires an EFA device that reports senders")
		}
	}
	c := &CQ{dev: d, solicited: cfg.SolicitedOnly, fields: cfg.Fields, pollFor: cfg.PollFor}
	if cfg.SolicitedOnly {
		c.notify |= cgo.NotifySolicited
	}
	if d.softRoCE() {
		c.notify |= cgo.NotifyRXE
	}
	switch {
	case cfg.Spin == 0 && runtime.NumCPU() > 1:
		c.spin = 64
	case cfg.Spin == 0:
		c.spin = 4 | cgo.Yield
	case cfg.Spin > 0:
		c.spin = spinsOf(cfg.Spin)
	}
	if err := c.life.Attach("cq", life.Label("cq"), &d.life); err != nil {
		return nil, err
	}
	if err := c.create(cfg); err != nil {
		d.life.RemoveChild("cq")
		return nil, err
	}
	watchEvents(d.async, d.async.cqs, uint64(c.cq), c)
	return c, nil
}

// createCQFor makes a completion queue for a queue pair of that configuration.
func (d *Device) createCQFor(cfg QPConfig) (*CQ, error) {
	orDefault := func(n int) int {
		if n <= 0 {
			n = 128
		}
		return n
	}
	depth := orDefault(cfg.MaxSendWR) + orDefault(cfg.MaxRecvWR)
	kept := cfg.KeepAlive > 0 && depth < d.attr.MaxCQE
	if kept {
		depth++
	}
	c, err := d.CreateCQ(CQConfig{Depth: min(depth, d.attr.MaxCQE), Vector: d.NextVector()})
	if kept && err == nil {
		c.keepRoom = 1
	}
	return c, err
}

func (c *CQ) create(cfg CQConfig) error {
	d := c.dev
	how := cgo.PollPlain
	if c.fields != 0 {
		how = cgo.PollExtended
		if d.softRoCE() {
			how = cgo.PollRXE
		}
	}
	path, err := cgo.NewPollPath(how)
	if err != nil {
		return opError("create cq on", d.name, err)
	}
	c.path = path
	if err := c.createOn(cfg); err != nil {
		cgo.FreePollPath(path)
		return err
	}
	return nil
}

func (c *CQ) createOn(cfg CQConfig) error {
	d := c.dev
	var file *os.File
	if !cfg.PollOnly {
		ch, fd, err := cgo.CreateCompChannel(d.ctx)
		if err != nil {
			return opError("create completion channel on", d.name, err)
		}
		c.channel = ch
		if file, err = pollfd.Open(fd, c.life.Label); err == nil {
			err = c.wait.init(c, file)
		}
		if err != nil {
			return errors.Join(opError("watch", c.life.Label, err), c.destroyChannel())
		}
	}
	var err error
	if c.fields != 0 {
		c.cq, c.depth, err = cgo.CreateCQEx(d.ctx, cfg.Depth, c.channel, cfg.Vector, uint64(cfg.Fields&^FieldsStandard), cfg.flags())
	} else {
		c.cq, c.depth, err = cgo.CreateCQ(d.ctx, cfg.Depth, c.channel, cfg.Vector)
	}
	if err != nil {
		c.wait.shut()
		detail := fmt.Sprintf("depth %d", cfg.Depth)
		if c.fields != 0 {
			err, detail = unsupported(err), detail+fmt.Sprintf(", fields %v, flags %#x", cfg.Fields, cfg.flags())
		}
		return errors.Join(opError("create cq on", d.name, err, detail), c.destroyChannel())
	}
	return nil
}

// flags are those of enum ibv_create_cq_attr_flags.
func (cfg *CQConfig) flags() uint32 {
	const singleThreaded, ignoreOverrun = 1 << 0, 1 << 1
	var f uint32
	if cfg.SingleThreaded {
		f |= singleThreaded
	}
	if cfg.IgnoreOverrun {
		f |= ignoreOverrun
	}
	return f
}

func (c *CQ) destroyChannel() error {
	if c.channel == 0 {
		return nil
	}
	err := c.dev.destroyed(cgo.DestroyCompChannel(c.channel))
	if err == nil {
		c.channel = 0
	}
	return err
}

// Close destroys the queue; a goroutine in Wait gets [ErrClosed]. It is
// refused with [ErrInUse] while a queue pair uses the queue. Closing twice is
// not an error.
func (c *CQ) Close() error {
	return c.life.Close("cq", c.wait.shut, func() error {
		if !c.life.Destroyed() {
			async := c.dev.async
			if err := unwatching(async, async.cqs, uint64(c.cq), func() error { return c.dev.destroyed(cgo.DestroyCQ(c.cq)) }); err != nil {
				return err
			}
			cgo.FreePollPath(c.path)
			c.life.MarkDestroyed()
		}
		return c.destroyChannel()
	})
}

// Depth is how many completions the queue holds.
func (c *CQ) Depth() int {
	c.sizing.Lock()
	defer c.sizing.Unlock()
	return c.depth
}

// Poll takes completions that are there, at most len(wcs), and returns how many. It never
// blocks and never allocates. The completions are copies, so they stay valid.
func (c *CQ) Poll(wcs []WC) (int, error) { return c.PollSpin(wcs, 0) }

// PollSpin is Poll repeated up to spins times in one crossing into C while the queue is
// empty. A spin occupies its thread, and on a machine with few CPUs it starves the soft
// interrupts in which a software device works: keep it short.
func (c *CQ) PollSpin(wcs []WC, spins int) (int, error) {
	return c.poll(nil, wcs, spinsOf(spins))
}

// poll polls for a router or, as nil, the program. It fails unless by is the one that
// takes the queue's completions now.
func (c *CQ) poll(by *router, wcs []WC, spins uint32) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	// A router that takes the completions has the poll lock, without which it is not removed.
	// Until then the queue has a child, and cannot be closed.
	if by == nil && !c.life.Enter() {
		return 0, opError("poll", c.life.Label, ErrClosed)
	}
	if now := c.router.Load(); now != by {
		return 0, c.leave(by, now)
	}
	if c.kept.Load() {
		return c.pollKept(by, wcs, spins)
	}
	n, err := cgo.PollCQ(c.cq, c.path, rawWCs(wcs), spins)
	c.exit(by)
	return c.polled(wcs, n, err)
}

// waitIdle waits for polls that began before. routing must be held.
func (c *CQ) waitIdle() {
	c.life.WaitIdle()
	for _, q := range c.senders { // a post that polls holds its queue pair alone
		q.life.WaitIdle()
	}
}

func (c *CQ) addSender(q *QP) {
	c.routing.Lock()
	defer c.routing.Unlock()
	c.senders = append(c.senders, q)
}

func (c *CQ) removeSender(q *QP) {
	c.routing.Lock()
	defer c.routing.Unlock()
	c.senders = slices.DeleteFunc(c.senders, func(s *QP) bool { return s == q })
}

// exit ends a call on the queue for by.
func (c *CQ) exit(by *router) {
	if by == nil {
		c.life.Exit()
	}
}

// pollKept is the rest of poll for a queue with keep-alives. It ends the call on the queue.
func (c *CQ) pollKept(by *router, wcs []WC, spins uint32) (int, error) {
	if c.stash.Load() != nil {
		c.exit(by)
		return c.unstash(wcs), nil
	}
	n, err := cgo.PollCQ(c.cq, c.path, rawWCs(wcs), spins)
	c.exit(by)
	return c.polled(wcs, c.sift(wcs[:n]), err)
}

// polled judges what a poll has found.
func (c *CQ) polled(wcs []WC, n int, err error) (int, error) {
	if err != nil || n == 0 && (c.overrun.Load() || c.dead.Load()) {
		return 0, c.pollError(err)
	}
	if anyFailed(wcs[:n]) {
		c.failed(wcs[:n])
	}
	return n, nil
}

// leave ends a call on the queue for by, when now takes the completions. The caller
// checks that inside the call: installing a router waits for polls in progress.
//
//go:noinline
func (c *CQ) leave(by, now *router) error {
	c.exit(by)
	return c.taken(by, now)
}

// taken returns the error of a poll for by on a queue from which now takes the completions.
func (c *CQ) taken(by, now *router) error {
	if by != nil && now == nil {
		return opError("poll", c.life.Label, errUnrouted)
	}
	return opError("poll", c.life.Label, ErrInUse, otherTakes)
}

// pollError is returned only once the queue is empty: completions in it are still good.
func (c *CQ) pollError(err error) error {
	if c.overrun.Load() {
		return opError("poll", c.life.Label, ErrOverrun, "depth ", c.Depth(), ": completions are lost and the queue must be closed")
	}
	if c.dead.Load() {
		return opError("poll", c.life.Label, errDeviceFailed)
	}
	if isErrno(err, syscall.EIO) {
		return opError("poll", c.life.Label, err, "the provider cannot read the queue")
	}
	return opError("poll", c.life.Label, err)
}
