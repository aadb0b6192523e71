package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
)

// Mode is the kind of a lock.
type Mode uint8

const (
	Exclusive Mode = iota
	// Shared holders keep writers out, not each other. A session has one
	// shared lock of a slot, which all of the client's holders share. There is
	// no way from shared to exclusive: a holder that tries waits for itself. With
	// more than 512 clients, those with an owner number above 512 hold shared locks exclusively:
	// see [Layout].
	Shared
	// Fair is exclusive, and waiting clients are served in the order in which
	// they came. It costs one round trip more than Exclusive. The target's agent hands
	// the lock from one to the next ([Dial], [Client.UseAgent]); without an agent Lock
	// returns [ErrNoAgent]. Exclusive locks do not respect this order: after 200 ms of
	// handing the lock on, the agent leaves it free for 10 ms, for clients that take it
	// without asking. A client that does not take its turn within half a second loses it.
	// The agent reserves at most 1,024 locks at a time for one client; a client that asks
	// for more gets [ErrBusy].
	Fair
)

// LockOptions describe the lock to take, and the tries for it.
type LockOptions struct {
	Mode  Mode
	Token bool // draw a fencing token; not for Shared
	Tries int  // in place of Retry.Tries, unless 0: 1 tries once; in Fair mode counted from its turn
}

// Lock takes the lock of a slot: it issues lock commands as [Config.Retry] says, unless o
// says otherwise, until the client has the lock or the context ends. If others hold the
// lock at each try it returns [ErrNotAcquired].
//
// The tags by which a session's locks are told apart repeat after 2^31 lock commands: a lock
// must not be held while its client issues so many.
func (c *Client) Lock(ctx context.Context, slot int, o LockOptions) (*Lock, Result, error) {
	h, res, err := c.acquire(ctx, slot, o)
	if err != nil {
		return nil, res, opError("lock", slot, err)
	}
	return h, res, nil
}

// LockAll takes the exclusive locks of several slots, in ascending order whatever order
// they are named in, so that clients which all use it cannot deadlock. A slot named
// twice is locked once. When one lock cannot be acquired, those already taken are
// released, in the background when the context has ended.
// The locks are returned in ascending order of their slots.
//
// Slots are written one by one, by Unlock or [Lock.Commit]. Clients that have the locks of
// the same slots see all of a change under them or nothing, unless the client that made it
// died in the middle. Records that must always change together belong in one slot.
//
// A holder that calls Lock or LockAll again can deadlock.
func (c *Client) LockAll(ctx context.Context, slots ...int) ([]*Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, opErrorf("lock", err)
	}
	ordered := slices.Compact(slices.Sorted(slices.Values(slots)))
	held := make([]*Lock, 0, len(ordered))
	for _, slot := range ordered {
		h, _, err := c.Lock(ctx, slot, LockOptions{})
		if err != nil {
			return nil, errors.Join(err, UnlockAll(ctx, held))
		}
		held = append(held, h)
	}
	return held, nil
}

// UnlockAll releases locks, the last one first. It tries all of them and joins
// the errors. When the context has ended it waits for none of them: they go on in the
// background, see [Lock.Unlock].
func UnlockAll(ctx context.Context, held []*Lock) error {
	var errs []error
	for _, h := range slices.Backward(held) {
		errs = append(errs, h.Unlock(ctx))
	}
	return errors.Join(errs...)
}

func (c *Client) acquire(ctx context.Context, slot int, o LockOptions) (*Lock, Result, error) {
	res := Result{Protocol: ProtocolTwoStep}
	if err := c.named(ctx, slot); err != nil {
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
	j, err := c.takeLock(ctx, s, m)
	res.Tries = m.Tried
	if err != nil {
		return nil, res, err
	}
	return c.hold(&Lock{c: c, s: s, g: m.Grant, j: j}, res)
}

// takeLock runs a machine and returns the job with which the lock is to be given back.
func (c *Client) takeLock(ctx context.Context, s *session, m *machine.Acquire) (*job, error) {
	j, err := c.start(s, m, m.Grant.Slot)
	if err != nil {
		return nil, err
	}
	if _, err := j.drive(ctx); err != nil {
		j.drop()
		return nil, err
	}
	return j, nil
}
