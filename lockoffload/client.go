package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Config describes an initiator. QP is connected to the target (RC, at least 8
// send requests); CQ is its send queue and is used by nobody else.
type Config struct {
	PD     *verbs.PD
	QP     *verbs.QP
	CQ     *verbs.CQ
	Remote verbs.Region
	Layout Layout
	// Owner tells this client from all others that ever use the region: 1 to
	// 65535. One that is used again after a crash may meet its own old tag.
	Owner uint16
	Retry Retry
}

// Result tells about a chain.
type Result struct {
	Version uint64 // of the record that was read or written
	Tries   int    // lock commands issued
}

// Stats counts since the client was made.
type Stats struct {
	Locked, Failed uint64 // lock commands that did and did not get the lock
	Torn           uint64 // records refused by their checksum
	Lost           uint64 // unlock commands that found another tag
}

// Scratch memory: results of atomics, then the record read, then the one to write.
const (
	atLock   = 0
	atUnlock = 8
	atCancel = 16
	atRead   = 64
)

// Client issues chains. It may be used by several goroutines; they take turns.
type Client struct {
	cfg   Config
	turn  chan struct{}
	mr    *verbs.MR
	batch *verbs.Batch
	wcs   []verbs.WC

	// Owned by whoever holds the turn.
	seq         uint64
	outstanding int    // signaled requests without a completion yet
	unlocking   uint64 // tag of an unlock command that nobody looked at
	unlockSlot  int
	back        backoff
	broken      error

	mu    sync.Mutex
	stats Stats
}

// NewClient makes an initiator. Close it before its queue pair.
func NewClient(cfg Config) (*Client, error) {
	cfg.Layout = cfg.Layout.withDefaults()
	if err := cfg.Layout.check(); err != nil {
		return nil, err
	}
	if cfg.Owner == 0 || cfg.PD == nil || cfg.QP == nil || cfg.CQ == nil {
		return nil, fmt.Errorf("lockoffload: make client: owner, PD, QP and CQ are needed: %w", ErrConfig)
	}
	if cfg.Remote.Length < uint64(cfg.Layout.Bytes()) {
		return nil, fmt.Errorf("lockoffload: make client: remote region of %d bytes: %w", cfg.Remote.Length, ErrConfig)
	}
	cfg.Retry = cfg.Retry.withDefaults()
	mr, err := cfg.PD.AllocMR(atRead+2*cfg.Layout.copyStride(), verbs.MRConfig{})
	if err != nil {
		return nil, err
	}
	b, err := cfg.QP.NewBatch(4)
	if err != nil {
		return nil, errors.Join(err, mr.Close())
	}
	return &Client{
		cfg: cfg, mr: mr, batch: b, wcs: make([]verbs.WC, 4), turn: make(chan struct{}, 1),
		back: backoff{min: cfg.Retry.Min, max: cfg.Retry.Max},
	}, nil
}

// Stats answers the counts so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *Client) count(f func(*Stats)) {
	c.mu.Lock()
	f(&c.stats)
	c.mu.Unlock()
}

// Close waits up to a second for an unlock under way and frees the client's
// memory. It may be called again.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if errors.Is(c.broken, ErrClosed) {
		return nil
	}
	err := c.settle(ctx)
	c.broken = ErrClosed
	return errors.Join(err, c.mr.Close())
}

// Flush waits for an unlock that was not waited for and reports its outcome.
func (c *Client) Flush(ctx context.Context) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	c.leave()
	return nil
}

// enter takes the turn and settles what the last one left.
func (c *Client) enter(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := c.broken
	if err == nil {
		err = c.settle(ctx)
	}
	if err != nil {
		c.leave()
	}
	return err
}

func (c *Client) leave() { <-c.turn }

// post posts the batch, of which signaled requests will complete.
func (c *Client) post(signaled int) error {
	if n, err := c.batch.Post(); err != nil {
		if n > 0 {
			c.broken = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
			return c.broken
		}
		return err
	}
	c.outstanding += signaled
	return nil
}

// wait takes all completions. Once one has failed, so has the queue pair.
func (c *Client) wait(ctx context.Context) error {
	for c.outstanding > 0 {
		n, err := c.cfg.CQ.Wait(ctx, c.wcs)
		for i := range n {
			if werr := c.wcs[i].Err(); werr != nil {
				c.broken = fmt.Errorf("%w: %w", ErrOutcomeUnknown, werr)
				return c.broken
			}
			c.outstanding--
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle waits for what is in flight and looks at the unlock's result.
func (c *Client) settle(ctx context.Context) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	tag := c.unlocking
	c.unlocking = 0
	if tag != 0 && c.word(atUnlock) != tag {
		c.count(func(s *Stats) { s.Lost++ })
		return opError("unlock", c.unlockSlot, ErrLost)
	}
	return nil
}

func (c *Client) word(off int) uint64 { return verbs.Uint64(c.mr.Bytes(), off) }

// tag is new for each try: owner 16 bits, sequence 48 bits.
func (c *Client) tag() uint64 {
	c.seq++
	return uint64(c.cfg.Owner)<<48 | c.seq&(1<<48-1)
}

func (c *Client) lockAt(slot int) verbs.Remote {
	return c.cfg.Remote.At(uint64(c.cfg.Layout.lockOff(slot)))
}

func (c *Client) recordAt(slot int) verbs.Remote {
	return c.cfg.Remote.At(uint64(c.cfg.Layout.recordOff(slot, 0)))
}

// sleep pauses before the next try, with jitter so that clients do not march
// in step.
func (c *Client) sleep(ctx context.Context) error {
	p := c.back.pause
	t := time.NewTimer(p/2 + rand.N(p+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
