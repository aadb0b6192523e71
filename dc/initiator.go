package dc

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/alarm"
	"github.com/goverbs/goverbs/verbs"
)

// InitiatorConfig says how to make an initiator. PD must be set; all other zero
// values are useful. Times of more than 30 days count as 30 days.
type InitiatorConfig struct {
	PD *verbs.PD
	// GID is the local address; the zero value means what an empty
	// [verbs.GIDQuery] finds.
	GID verbs.GIDEntry
	// CQ is where requests complete. Several initiators may share one, also with
	// requesters; it grows as need be. nil means one of its own.
	CQ *verbs.CQ
	// Control is the control queue pair, which several initiators may share. nil
	// means one of its own.
	Control *Control
	// Contexts is the number of initiator contexts, each one queue pair and
	// attached to one target at a time. 0 means 16; 1 makes a serial initiator.
	// With hardware it is the number of DCIs.
	Contexts int
	// Depth is how many requests of one context may be outstanding; 0 means 64 with
	// hardware and 31 without. A device may clear its whole ring each time a context
	// changes its target, and Soft-RoCE's has the next power of two above Depth places.
	Depth int
	// Quota is how many requests a context may post to its target while
	// others wait; 0 means 32.
	Quota int
	// Hold bounds the same in time, as far as the requests under way allow; 0
	// means 100 ms.
	Hold time.Duration
	// MaxWait is how long a target may have to wait for a context before it comes
	// in front of those with more requests; 0 means 2 s. When all have to wait for about
	// as long, they are served in the order of coming, which takes more attaches.
	MaxWait time.Duration
	// MaxPending is how many requests may wait for one target; 0 means 1024.
	MaxPending int
	// MaxSGE is how many pieces of memory a request may have; 0 means 1.
	MaxSGE int
	// ConnectTimeout is how long a target may leave connect packets without
	// a reply; 0 means 5 s. A busy target replies.
	ConnectTimeout time.Duration
	// Retransmit is the first pause before a control message is sent again,
	// which doubles each time; 0 means 50 ms.
	Retransmit time.Duration
	// CloseSessions closes a session whenever its context leaves the target.
	// Otherwise the session is kept, and the same context goes on with it
	// later without a message, on devices on which that was tested: Soft-RoCE. Other
	// devices close sessions.
	CloseSessions bool
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
	// ReplyTo is the address of a target of the program's own, at which the
	// receivers of its messages may reach it: see [Received.ReplyTo].
	ReplyTo Address
	// TrafficClass of requests and control messages: DSCP and ECN bits on RoCE v2.
	TrafficClass uint8
	// MTU of the hardware back end, which its targets must have too; 0 means
	// what GID has, as [verbs.Device.LocalMTU] returns it.
	MTU verbs.MTU
	// Streams of each DCI, a power of two; 0 means what the device has, at
	// most 8; negative means none.
	Streams int
	Logger  *slog.Logger // nil: silent
}

func (c *InitiatorConfig) defaults() {
	setInt(&c.Contexts, 16)
	setInt(&c.Quota, 32)
	setInt(&c.MaxPending, 1024)
	setInt(&c.MaxSGE, 1)
	setTime(&c.Hold, 100*time.Millisecond)
	setTime(&c.MaxWait, 2*time.Second)
	setTime(&c.ConnectTimeout, 5*time.Second)
	setTime(&c.Retransmit, 50*time.Millisecond)
	setTime(&c.AckTimeout, verbs.AckTimeout(14).Duration())
	c.Logger = logsOf(c.Logger)
}

// longestTime is what all times of the configurations are bounded by: a lease of so many
// milliseconds fits into a message, and sums of several fit into a [time.Duration].
const longestTime = 30 * 24 * time.Hour

func setTime(v *time.Duration, def time.Duration) {
	if *v <= 0 {
		*v = def
	}
	*v = min(*v, longestTime)
}

func setInt(v *int, def int) {
	if *v <= 0 {
		*v = def
	}
}

// maxContexts is what the number of a work request has room for.
const maxContexts = 1 << 16

// Initiator sends requests to any number of targets through a few queue pairs.
// Its methods may be called from any number of goroutines.
//
// There are two ways to learn how requests end. [Initiator.Do] does one request
// and returns its error. [Initiator.Post] takes many; [Initiator.Poll] and
// [Initiator.Wait] return their completions, and never those of Do.
//
// A goroutine must poll, wait or be in Do: a session ends when its completions are
// taken, and only then can the next target be served.
type Initiator struct {
	cfg     InitiatorConfig
	be      backend
	d       *verbs.Dispatcher
	own     func(tag uint64, wc *verbs.WC) // completed, for driver.DispatchOwn
	cq      *verbs.CQ                      // its own, or nil
	start   time.Time
	ctx     context.Context // of what goes on in the background
	cancel  context.CancelFunc
	work    sync.WaitGroup
	hand    chan struct{} // has a token when the back end needs a goroutine
	events  chan Event
	closing sync.Once
	halt    sync.Once
	halted  chan struct{} // closed when the device touches no memory any more

	mu      sync.Mutex
	peers   map[uint64]*Peer // by the address's and key's hash
	seed    maphash.Seed
	done    completions
	calls   *call           // that are not in use
	idle    *taker          // likewise
	takers  []*verbs.Waiter // of goroutines that wait for completions
	doers   []*verbs.Waiter // of goroutines in Do and Flush
	outside int             // goroutines that end requests without having polled
	woken   bool            // they have ended what a goroutine waits for, perhaps parked
	polling int             // goroutines that look, and will perform
	expiry  alarm.Alarm     // of requests with a timeout
	timed   []*Peer         // that have such requests
	dropped uint64
	lost    error // the completion queue cannot be polled any more
	closed  bool
}

// NewInitiator makes an initiator.
func NewInitiator(cfg InitiatorConfig) (i *Initiator, err error) {
	cfg.defaults()
	switch {
	case cfg.PD == nil:
		return nil, opError("make", "initiator", errors.Join(verbs.ErrAttributes, errors.New("PD is missing")))
	case cfg.Contexts > maxContexts:
		return nil, opError("make", "initiator", fmt.Errorf("%w: %d contexts", verbs.ErrAttributes, cfg.Contexts))
	}
	i = newInitiator(cfg)
	be, err := choose(cfg.Backend, func() (backend, error) { return newHardware(i) }, func() (backend, error) { return newSoftware(i) })
	i.mu.Lock() // other users of the completion queue poll already
	i.be = be
	i.mu.Unlock()
	if err != nil {
		i.cancel()
		return nil, errors.Join(opError("make", "initiator", err), i.closeQueue())
	}
	i.begin()
	return i, nil
}

// newInitiator makes an initiator without a back end.
func newInitiator(cfg InitiatorConfig) *Initiator {
	i := &Initiator{cfg: cfg, start: time.Now(), hand: make(chan struct{}, 1), events: make(chan Event, eventsKept),
		peers: make(map[uint64]*Peer), seed: maphash.MakeSeed(), halted: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.own = i.completed
	return i
}

// begin starts the timer and the goroutine of the background.
func (i *Initiator) begin() {
	i.expiry.Init(i.expire, time.Millisecond)
	i.work.Go(i.attendUnpolled)
}

// dispatch prepares the completion queue for so many requests.
func (i *Initiator) dispatch(depth int) (err error) {
	cq := i.cfg.CQ
	if cq == nil {
		if i.cq, err = i.cfg.PD.Device().CreateCQ(verbs.CQConfig{Depth: depth}); err != nil {
			return err
		}
		cq = i.cq
	}
	d, err := cq.Dispatch(&engine{i}, depth)
	i.mu.Lock()
	i.d = d
	i.mu.Unlock()
	return err
}

// closeQueue closes what dispatch has made, and may be called again.
func (i *Initiator) closeQueue() error {
	var errs []error
	if i.d != nil {
		errs = append(errs, i.d.Close())
	}
	if i.cq != nil {
		errs = append(errs, i.cq.Close())
	}
	return errors.Join(errs...)
}

func (i *Initiator) now() time.Duration { return time.Since(i.start) }

func (i *Initiator) open() bool { return !i.closed && i.lost == nil }

// usable returns the reason why nothing can be done, or nil. mu must be held.
func (i *Initiator) usable() error {
	if i.closed {
		return ErrClosed
	}
	return i.lost
}

// Hardware reports whether the initiator has the hardware back end.
func (i *Initiator) Hardware() bool {
	_, ok := i.be.(*hardware)
	return ok
}

// step calls f with the lock, unless the initiator is closed or lost, and does then what the
// back end has to do.
func (i *Initiator) step(f func()) {
	i.mu.Lock()
	if !i.open() {
		i.mu.Unlock()
		return
	}
	f()
	i.unlock()
}

// unlock does what the back end has to do, and gives up the lock.
func (i *Initiator) unlock() {
	if i.open() && i.be.busy() {
		i.outside++
		i.be.perform()
		i.outside--
	}
	i.wakeTakers()
	woken := i.woken
	i.woken = false
	i.mu.Unlock()
	if woken && i.d != nil {
		i.d.Wake(&verbs.Waiter{}) // a parked goroutine looks up
	}
}

// wake wakes a goroutine that waits for completions if there are any, and one that does
// what the back end has to do unless a goroutine polls.
func (i *Initiator) wake() {
	if n := len(i.takers); n > 0 && i.done.len() > 0 {
		i.takers[n-1].Wake()
	}
	if i.polling > 0 || !i.be.busy() {
		return
	}
	if n := len(i.takers); n > 0 {
		i.takers[n-1].Wake()
	} else if n := len(i.doers); n > 0 {
		i.doers[n-1].Wake()
	} else {
		select {
		case i.hand <- struct{}{}:
		default:
		}
	}
}

// wakeTakers wakes a goroutine for completions that come without polling.
func (i *Initiator) wakeTakers() {
	if n := len(i.takers); n > 0 && i.done.len() > 0 {
		i.takers[n-1].Wake()
		i.woken = true
	}
}

// attendUnpolled does what the back end has to do while no goroutine polls.
func (i *Initiator) attendUnpolled() {
	for {
		select {
		case <-i.hand:
			i.mu.Lock()
			i.unlock()
		case <-i.ctx.Done():
			return
		}
	}
}

// wakeAll makes all waiting goroutines look up.
func (i *Initiator) wakeAll() {
	i.mu.Lock()
	for _, w := range i.takers {
		w.Wake()
	}
	for _, w := range i.doers {
		w.Wake()
	}
	d := i.d
	i.mu.Unlock()
	if d != nil {
		d.Wake(&verbs.Waiter{})
	}
}

// Close ends all sessions. Requests that have not completed get no completion,
// those in Do end with [ErrClosed], and their memory is the caller's again.
// Closing twice is not an error; all calls wait for the end.
func (i *Initiator) Close() (err error) {
	i.closing.Do(func() { err = i.end() })
	return err
}

func (i *Initiator) end() error {
	i.mu.Lock()
	i.closed = true
	for t := i.idle; t != nil; t = t.next {
		t.leave()
	}
	i.idle = nil
	i.mu.Unlock()
	i.cancel()
	i.expiry.Stop()
	i.wakeAll()
	i.work.Wait()
	i.be.stop()
	i.work.Wait()
	err := i.be.close()
	i.halt.Do(func() { close(i.halted) })
	i.wakeAll()
	err = errors.Join(err, i.closeQueue())
	i.mu.Lock()
	close(i.events)
	i.mu.Unlock()
	return err
}
