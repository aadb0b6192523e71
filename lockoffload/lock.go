package lockoffload

import (
	"context"
	"sync"
)

// Held is an exclusive lock that this client holds.
type Held struct {
	c    *Client
	slot int
	tag  uint64
	mu   sync.Mutex
	done bool
	err  error
}

// TryLock issues one lock command. A lock held by others is [ErrNotAcquired].
func (c *Client) TryLock(ctx context.Context, slot int) (*Held, Result, error) {
	return c.lock(ctx, slot, 1)
}

// Lock issues lock commands as [Config.Retry] says, until the lock is ours or
// the context ends.
func (c *Client) Lock(ctx context.Context, slot int) (*Held, Result, error) {
	return c.lock(ctx, slot, c.cfg.Retry.Tries)
}

func (c *Client) lock(ctx context.Context, slot, tries int) (*Held, Result, error) {
	var res Result
	if err := c.begin(ctx, slot, "lock"); err != nil {
		return nil, res, err
	}
	defer c.leave()
	tag, err := c.retry(ctx, slot, &res, false, tries)
	if err != nil {
		return nil, res, opError("lock", slot, err)
	}
	if version, _, err := c.record(); err == nil {
		res.Version = version
	}
	return &Held{c: c, slot: slot, tag: tag}, res, nil
}

// Unlock releases the lock and waits for the reply. [ErrLost] says that the
// lock was no longer ours. Further calls answer the same. After an error of
// the context the unlock command is still under way, see [Client.Flush].
func (h *Held) Unlock(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return h.err
	}
	if err := h.c.begin(ctx, h.slot, "unlock"); err != nil {
		return err
	}
	defer h.c.leave()
	if err := h.c.unlock(h.slot, h.tag); err != nil {
		return opError("unlock", h.slot, err)
	}
	h.done = true
	h.err = h.c.settle(ctx)
	return h.err
}
