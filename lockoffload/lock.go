package lockoffload

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
)

// Mode is the kind of a lock.
type Mode uint8

const (
	Exclusive Mode = iota
	// Shared holders keep writers out, not each other. A session has one
	// shared lock of a slot, which all of the client's holders share. There is
	// no way from shared to exclusive: a holder that tries waits for itself. With
	// more than 512 clients those beyond keep each other out, see [Layout].
	Shared
	// Fair is exclusive, and those who wait are served in the order in which
	// they came. It costs one round trip more than Exclusive. The target's agent hands
	// the lock from one to the next ([Dial], [Client.UseAgent]); without an agent a fair
	// lock is [ErrNoAgent]. Exclusive knows nothing of its order.
	Fair
)

// LockOptions say which lock to take, and how.
type LockOptions struct {
	Mode  Mode
	Token bool // draw a fencing token; not for Shared
	Tries int  // in place of Retry.Tries, unless 0; in Fair mode counted from its turn
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
	if err := c.named(ctx, slot, []int{0}); err != nil {
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
	switch o.Mode {
	case Shared:
		return c.acquireShared(ctx, s, slot, tries)
	case Fair:
		return c.acquireTurn(ctx, s, slot, tries, o.Token)
	}
	m := &machine.Acquire{Tags: &s.tags, Tries: tries, Token: o.Token, Grant: machine.Grant{Slot: slot}}
	j, err := c.start(m, slot)
	if err != nil {
		return nil, res, err
	}
	j.s = s
	_, err = j.drive(ctx)
	res.Tries = m.Tried
	if err != nil {
		j.drop()
		return nil, res, err
	}
	return c.hold(&Held{c: c, s: s, g: m.Grant, j: j}, res)
}
