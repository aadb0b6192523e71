package lockoffload

import (
	"context"
	"fmt"
	"sync"
)

// Mode is the kind of a lock.
type Mode uint8

const (
	Exclusive Mode = iota
	// Shared holders keep writers out, not each other. A session has one
	// shared lock of a slot, which all of the client's holders share. There is
	// no way from shared to exclusive: a holder that tries waits for itself.
	Shared
	// Fair is exclusive, and those who wait are served in the order in which
	// they came. It costs one round trip more than Exclusive.
	Fair
)

// LockOptions say which lock to take, and how.
type LockOptions struct {
	Mode  Mode
	Token bool // draw a fencing token; not for Shared
	Tries int  // in place of Retry.Tries, unless 0; in Fair mode counted from its turn
}

// Held is a lock that this client holds. Its methods are safe for concurrent
// use.
type Held struct {
	c     *Client
	s     *session
	g     grant
	share *bit

	mu   sync.Mutex
	done bool
	err  error
}

// TryLock issues one lock command. A lock held by others is [ErrNotAcquired].
func (c *Client) TryLock(ctx context.Context, slot int) (*Held, Result, error) {
	return c.Acquire(ctx, slot, LockOptions{Tries: 1})
}

// Lock issues lock commands as [Config.Retry] says, until the lock is ours or
// the context ends.
func (c *Client) Lock(ctx context.Context, slot int) (*Held, Result, error) {
	return c.Acquire(ctx, slot, LockOptions{})
}

// Acquire takes the lock of a slot.
func (c *Client) Acquire(ctx context.Context, slot int, o LockOptions) (*Held, Result, error) {
	h, res, err := c.acquire(ctx, slot, o)
	if err != nil {
		return nil, res, opError("lock", slot, err)
	}
	return h, res, nil
}

func (c *Client) acquire(ctx context.Context, slot int, o LockOptions) (*Held, Result, error) {
	res := Result{Form: FormTwoStep}
	if err := c.named(slot, []int{0}); err != nil {
		return nil, res, err
	}
	if o.Mode > Fair || o.Tries < 0 || o.Token && o.Mode == Shared {
		return nil, res, fmt.Errorf("%w: %+v", ErrConfig, o)
	}
	tries := o.Tries
	if tries == 0 {
		tries = c.cfg.Retry.Tries
	}
	s := c.session()
	if err := s.allowed(); err != nil {
		return nil, res, err
	}
	if o.Mode == Shared {
		return c.acquireShared(ctx, s, slot, tries)
	}
	m := &acquire{tags: &s.tags, tries: tries, token: o.Token, grant: grant{slot: slot}}
	if o.Mode == Fair {
		m.queue = new(queue)
	}
	j, err := c.start(m, slot, 1)
	if err != nil {
		return nil, res, err
	}
	_, err = j.run(ctx, s)
	res.Tries = m.tried
	if err != nil {
		return nil, res, err
	}
	return &Held{c: c, s: s, g: m.grant}, res, nil
}

// Slot is the slot that is locked.
func (h *Held) Slot() int { return h.g.slot }

// Token is the fencing token that [LockOptions.Token] asked for: higher than
// that of all holders before. It is for things outside of the region, which
// refuse tokens lower than the highest that they have seen.
func (h *Held) Token() uint64 { return h.g.token }

// Lost is closed when the lock can no longer be relied on, because the session
// ended or its lease ran out. The target keeps late WRITEs of a lost lock from
// being executed before it gives the lock to others.
func (h *Held) Lost() <-chan struct{} { return h.s.lost }

// Read reads a record under the lock.
func (h *Held) Read(ctx context.Context, record int, dst []byte) ([]byte, Result, error) {
	var data []byte
	res, err := h.access(ctx, record, func(old current) ([]byte, error) {
		if len(old.data) > len(dst) {
			return nil, fmt.Errorf("%w: %d bytes do not fit in %d", ErrConfig, len(old.data), len(dst))
		}
		data = dst[:copy(dst, old.data)]
		return nil, nil
	})
	if err != nil {
		return nil, res, opError("read", h.g.slot, err)
	}
	return data, res, nil
}

// Write changes a record under an exclusive lock and waits until it is there.
// [ErrLost] without [ErrOutcomeUnknown] says that nothing was posted.
func (h *Held) Write(ctx context.Context, record int, data []byte) (Result, error) {
	if h.g.shared || len(data) > h.c.l.Size {
		return Result{}, opError("write", h.g.slot, ErrConfig)
	}
	res, err := h.access(ctx, record, func(current) ([]byte, error) { return append([]byte{}, data...), nil })
	if err != nil {
		return res, opError("write", h.g.slot, err)
	}
	return res, nil
}

func (h *Held) access(ctx context.Context, record int, f func(current) ([]byte, error)) (Result, error) {
	res := Result{Form: FormTwoStep}
	if err := h.c.named(h.g.slot, []int{record}); err != nil {
		return res, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return res, ErrClosed
	}
	if err := h.s.allowed(); err != nil {
		return res, err
	}
	m := &access{slot: h.g.slot, record: record, change: f, allowed: h.s.allowed}
	j, err := h.c.start(m, h.g.slot, 1)
	if err != nil {
		return res, err
	}
	_, err = j.run(ctx, h.s)
	res.Version = m.version
	if err != nil && m.wrote {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return res, err
}

// Unlock gives the lock back and waits for the reply. [ErrLost] says that it
// was no longer ours. Further calls answer the same. After an error of the
// context the unlock command is still under way, see [Client.Flush].
func (h *Held) Unlock(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return h.err
	}
	p, err := h.release()
	h.done, h.err = true, err
	if p != nil {
		h.err = p.Wait(ctx)
	}
	return h.err
}

// release posts the unlock command.
func (h *Held) release() (*Commit, error) {
	if h.share != nil && !h.c.dropShare(h.share) {
		return nil, nil // others of this client still hold it
	}
	m := &releaser{grant: h.g, owner: h.s.tags.owner}
	j, err := h.c.start(m, h.g.slot, 0)
	if err != nil {
		return nil, err
	}
	if h.share != nil {
		j.after = func() { h.c.endShare(h.share) }
	}
	return j.run(context.Background(), h.s)
}
