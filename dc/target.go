package dc

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/closing"
	"github.com/goverbs/goverbs/verbs"
)

// TargetConfig says how to make a target. PD must be set; all other zero values
// are useful. Times of more than 30 days count as 30 days.
type TargetConfig struct {
	PD *verbs.PD
	// GID is the local address; the zero value means what an empty
	// [verbs.GIDQuery] finds.
	GID verbs.GIDEntry
	// AccessKey is what initiators must show. Without it they get no reply.
	AccessKey uint64
	// Responders is the number of responder contexts: initiators that can be
	// attached at the same time. 0 means 16. A target needs one for each initiator
	// context that uses it from time to time, and shares what it has if there are fewer.
	Responders int
	// Receives is the depth of the shared receive queue; 0 means 1024.
	Receives int
	// Lease is how long an initiator may be silent before its responder context is
	// taken back though no other one waits for it; 0 means a minute. Initiators send a
	// keep-alive four times as often while they are attached, and none for a
	// session that is kept, which they can take up again for half of this time.
	// On Soft-RoCE requests are as good as keep-alives: a target looks two to four
	// times in a lease whether any have come, and takes a responder context back a lease
	// after the look that has found the last.
	//
	// An initiator with the key has the memory for as long as its session lives. If one
	// that was given up must stop writing sooner, choose a shorter lease; an initiator
	// that comes back every few seconds then opens a session each time. Initiators that
	// wait for a responder context get it by Recall, however long the lease.
	Lease time.Duration
	// Recall is how long an initiator may keep a responder context after it was
	// asked for it because others wait; then the session ends, and what is under
	// way fails. It is remembered for eight times as long when they are not there
	// all the time. 0 means a second.
	Recall time.Duration
	// Retry is when an initiator that got a busy reply comes again unless it
	// is called earlier; 0 means 50 ms.
	Retry time.Duration
	// Service is a port at which initiators that get no reply can ask, through
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
	// TrafficClass of responses and control messages: DSCP and ECN bits on RoCE v2.
	TrafficClass uint8
	// MTU of the hardware back end, which its initiators must have too; 0
	// means what GID has, as [verbs.Device.LocalMTU] returns it.
	MTU    verbs.MTU
	Logger *slog.Logger // nil: silent
}

func (c *TargetConfig) defaults() {
	setInt(&c.Responders, 16)
	setInt(&c.Receives, 1024)
	setTime(&c.Lease, time.Minute)
	setTime(&c.Recall, time.Second)
	setTime(&c.Retry, 50*time.Millisecond)
	c.Logger = logsOf(c.Logger)
}

// Target is what initiators reach: a pool of responder contexts behind one
// address, with one shared receive queue. Its methods may be called from any
// number of goroutines; receive batches belong to one.
type Target struct {
	cfg TargetConfig
	be  targetBackend
	srq *verbs.SRQ
	cq  *verbs.CQ // receives
	in  receives

	queues closing.Stack

	closing sync.Mutex
}

// targetBackend is what a target is reached by.
type targetBackend interface {
	address() Address
	generation() uint64
	stats() TargetStats
	// stop ends what goes on in the background, and close what was made.
	stop()
	close() error
}

// NewTarget makes a target and begins to serve initiators.
func NewTarget(cfg TargetConfig) (*Target, error) {
	cfg.defaults()
	if cfg.PD == nil {
		return nil, opError("make", "target", errors.Join(verbs.ErrAttributes, errors.New("PD is missing")))
	}
	t := &Target{cfg: cfg}
	if cfg.Service != 0 && cfg.Backend == Auto {
		cfg.Backend = Software
	}
	var err error
	t.be, err = choose(cfg.Backend, func() (targetBackend, error) { return newHardwareTarget(t) }, func() (targetBackend, error) { return newSoftwareTarget(t) })
	if err != nil {
		return nil, opError("make", "target", err)
	}
	return t, nil
}

// prepare makes the queues of receives.
func (t *Target) prepare(depth int) (err error) {
	if t.srq, err = t.cfg.PD.CreateSRQ(verbs.SRQConfig{MaxWR: t.cfg.Receives}); err != nil {
		return err
	}
	t.queues.Add(t.srq)
	if t.cq, err = t.cfg.PD.Device().CreateCQ(verbs.CQConfig{Depth: depth}); err != nil {
		return err
	}
	t.queues.Add(t.cq)
	t.in.init(t.cq)
	return nil
}

// Address returns what initiators resolve. It means whichever target is there: with
// the Generation that [Target.Generation] returns it means this one only.
func (t *Target) Address() Address { return t.be.address() }

// Generation returns a number that distinguishes the target from others that had its
// address before, or will have it.
func (t *Target) Generation() uint64 { return t.be.generation() }

// Stats returns the counters so far.
func (t *Target) Stats() TargetStats { return t.be.stats() }

// NewRecvBatch makes a batch of receives for the shared receive queue, which
// the SENDs and WRITEs with immediate of all initiators take. If a message
// finds none, its initiator tries again a few times, then serves its other targets and comes
// again; it is not an error, but for long WRITEs with immediate: see [ErrNoReceive].
func (t *Target) NewRecvBatch(n int) (*verbs.RecvBatch, error) { return t.srq.NewRecvBatch(n) }

// Poll takes what has arrived, at most len(rs), and returns the number. It never
// blocks.
func (t *Target) Poll(rs []Received) (int, error) { return t.in.poll(rs) }

// Wait is Poll until there is something. It ends early with the context's error
// or with [ErrClosed]. With a context that has ended before, it takes nothing.
func (t *Target) Wait(ctx context.Context, rs []Received) (int, error) { return t.in.take(ctx, rs) }

// Close ends all sessions at once: requests of attached initiators fail.
// Receives that are posted get no completion. Closing twice is not an error; all calls
// wait for the end. After an error initiators may still be served, and Close may be called again.
func (t *Target) Close() error {
	t.closing.Lock()
	defer t.closing.Unlock()
	t.be.stop()
	t.in.close()
	return errors.Join(t.be.close(), t.queues.Close())
}
