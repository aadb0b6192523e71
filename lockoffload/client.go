package lockoffload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/verbs"
)

// Config describes a client. QP is connected to the target (RC, at least 16
// send requests); its sends are the client's ([verbs.Requester]) and complete in CQ,
// which it may share with other clients and requesters. The caller must close both,
// after the client: until then the queue pair returns [verbs.ErrInUse]. The client
// moves it to ERROR when its session is over.
type Config struct {
	PD      *verbs.PD
	QP      *verbs.QP
	CQ      *verbs.CQ
	Session SessionInfo
	Retry   Retry
	Logger  *slog.Logger // gets errors of operations that no call waits for; nil: silent
}

// Result describes how an operation was carried out.
type Result struct {
	Protocol Protocol
	Version  uint64 // of the record of the last access
	Tries    int    // lock commands, looks at readers that held the slot, and READs without a lock
	// Commit is the outcome of WRITE and unlock command of a change that the client made
	// itself; unless [Chain.Async], it is known.
	Commit *Commit
}

// Client reads and changes the records of a target's region. A slot is a lock and its records;
// a [Chain] is a list of accesses to the records of one slot. All methods are safe for concurrent use; operations of several goroutines are under way together. Read
// and Update allocate nothing once the client has its memory.
type Client struct {
	cfg    Config
	l      memory.Layout
	target target

	ending sync.Once
	ended  error // of Close
	over   context.Context
	stop   context.CancelFunc // ends over
	pace   pace

	mu        sync.Mutex
	s         *session
	closed    bool
	abandoned bool          // no lock is held any more
	freed     bool          // a job that becomes idle is closed at once
	jobs      []*job        // idle ones
	busy      int           // busy jobs, and sessions that are being closed
	idled     chan struct{} // closed when there are none, if Close waits
	bits      map[int]*bit
	held      map[*Lock]struct{}
	stats     Stats
	pending   map[*Commit]struct{}
	settled   *Commit              // is over, without an error
	failed    map[*Commit]struct{} // with errors that no call has returned, for Flush
	old       error                // of the ends of earlier sessions, for Close

	swaps swapTable
	agent *Caller // of UseAgent
	link  *link   // of a client that dialed
}

// NewClient makes a client for the session of cfg.
func NewClient(cfg Config) (*Client, error) {
	if cfg.PD == nil || cfg.QP == nil || cfg.CQ == nil {
		return nil, fmt.Errorf("lockoffload: make client: PD, QP and CQ are needed: %w", ErrConfig)
	}
	if err := cfg.Session.check(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, discard)
	cfg.Retry = cfg.Retry.withDefaults()
	s, err := newSession(cfg.PD, cfg.QP, cfg.CQ, cfg.Session)
	if err != nil {
		return nil, err
	}
	return newClient(cfg, memory.Layout(cfg.Session.Layout).WithDefaults(), s), nil
}

func newClient(cfg Config, l memory.Layout, s *session) *Client {
	c := &Client{
		cfg: cfg, l: l, target: target{Layout(l), cfg.Session.Generation}, s: s,
		bits: map[int]*bit{}, held: map[*Lock]struct{}{}, pending: map[*Commit]struct{}{}, failed: map[*Commit]struct{}{},
	}
	c.over, c.stop = context.WithCancel(context.Background())
	c.settled = &Commit{c: c}
	c.settled.over.happen()
	return c
}

// Reconnect goes on after [ErrBroken] or a lease that ran out, with a new queue
// pair and a new session info from the same target. Locks taken before are lost;
// operations that are still under way fail. The old queue pair may be closed
// afterwards. After an error the client still uses the old queue pair, and not the
// new one. [ErrRestarted] says that the session info is of another region.
func (c *Client) Reconnect(ctx context.Context, qp *verbs.QP, cq *verbs.CQ, in SessionInfo) error {
	if err := ctx.Err(); err != nil {
		return opErrorf("reconnect", err)
	}
	if qp == nil || cq == nil {
		return fmt.Errorf("lockoffload: reconnect: QP and CQ are needed: %w", ErrConfig)
	}
	if err := in.check(); err != nil {
		return err
	}
	if err := c.target.accepts(in.target()); err != nil {
		return opErrorf("reconnect", err)
	}
	s, err := newSession(c.cfg.PD, qp, cq, in)
	if err != nil {
		return err
	}
	c.mu.Lock()
	old := c.s
	if c.closed {
		c.mu.Unlock()
		return errors.Join(opErrorf("reconnect", ErrClosed), s.close())
	}
	c.s, c.bits = s, map[int]*bit{}
	c.busy++ // Close waits for this one too
	c.mu.Unlock()
	err = old.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.noLongerBusy()
	c.old = errors.Join(c.old, err)
	return nil
}

// Lost is closed when the present session ends: its lease ran out, its
// connection failed or it was closed.
func (c *Client) Lost() <-chan struct{} { return c.session().lost }

func (c *Client) session() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s
}

// maxSlots limits the slots of which a client keeps state, so that its memory does not
// grow with the region.
const maxSlots = 1 << 16

// Stats returns the counts of all slots together.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// UseAgent has [Client.Do] send chains that write to the target's agent. agent, which
// must reach the same region, is not closed with the client; nil ends its use.
func (c *Client) UseAgent(agent *Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agent = agent
}

// Flush waits for unlock commands that no call has waited for, and for operations
// that were given up. It joins the errors since the last Flush that no [Commit.Wait]
// returned.
func (c *Client) Flush(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.mu.Lock()
		var one *Commit
		for p := range c.pending {
			one = p
			one.waits++
			break
		}
		if one == nil {
			var errs []error
			for p := range c.failed {
				errs = append(errs, p.err)
			}
			clear(c.failed)
			c.mu.Unlock()
			return errors.Join(errs...)
		}
		c.mu.Unlock()
		err := one.await(ctx)
		c.waited(one)
		if err != nil {
			return err
		}
	}
}

// waited ends a wait for a pending commit.
func (c *Client) waited(p *Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.waits--
}

// Close waits up to a second for what is under way, ends the session and frees
// the client's memory. Locks that are still held are lost once the target has
// noticed. It may be called again, and concurrently with all other methods: a second
// call waits for the first and returns the same error.
func (c *Client) Close() error {
	c.ending.Do(func() { c.ended = c.close() })
	return c.ended
}

func (c *Client) close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := c.Flush(ctx)
	// A failed connection has been reported to the calls that used it.
	if errors.Is(err, ErrBroken) && !errors.Is(err, ErrOutcomeUnknown) {
		err = nil
	}
	err = errors.Join(err, c.s.close())
	c.mu.Lock()
	held := slices.Collect(maps.Keys(c.held))
	c.abandoned = true
	c.mu.Unlock()
	for _, h := range held {
		h.abandon()
	}
	if c.link != nil {
		c.UseAgent(nil)
		err = errors.Join(err, c.link.close())
	}
	err = errors.Join(err, c.free())
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(err, c.old)
}

// free frees the memory of all jobs. Jobs under way have been ended and are over in a
// moment, unless a callback of the program takes longer.
func (c *Client) free() error {
	c.mu.Lock()
	c.freed = true
	var errs []error
	for _, j := range c.jobs {
		errs = append(errs, j.mr.Close())
	}
	c.jobs = nil
	idled := make(chan struct{})
	if c.idled = idled; c.busy == 0 {
		close(idled)
	}
	c.mu.Unlock()
	select {
	case <-idled:
	case <-time.After(closeTimeout):
	}
	return errors.Join(errs...)
}
