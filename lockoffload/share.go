package lockoffload

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
)

// bit is the use of the one bit that a session has among the readers of a
// slot, by all holders of the shared lock together. Two FETCH_ADDs of it at a time
// would carry into another session's bit.
type bit struct {
	slot  int
	free  chan struct{} // closed when it is in use no more
	held  bool
	grant machine.Grant
	refs  int
	j     *job // to give it back with
}

// endShare ends the use of a bit; that of an older session may be gone. mu must be held.
func (c *Client) endShare(b *bit) {
	if c.bits[b.slot] == b {
		delete(c.bits, b.slot)
	}
	close(b.free)
}

// dropShare ends the hold of one holder. It reports whether that was the last one, which
// must give the lock back.
func (c *Client) dropShare(b *bit) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.refs--
	if b.refs == 0 {
		b.held = false
	}
	return b.refs == 0
}

// joinShare joins a shared lock that the session has, or takes the bit to get one, or
// returns a channel to wait for.
func (c *Client) joinShare(s *session, slot int) (b *bit, joined bool, wait <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s != s {
		return nil, false, nil, ErrLost
	}
	if b := c.bits[slot]; b != nil {
		if b.held {
			b.refs++
			return b, true, nil, nil
		}
		return nil, false, b.free, nil
	}
	b = &bit{slot: slot, free: make(chan struct{})}
	c.bits[slot] = b
	return b, false, nil, nil
}

// pendingOf returns a pending commit of the slot, to be waited for, or nil.
func (c *Client) pendingOf(slot int) *Commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.pending {
		if p.slot == slot {
			p.waits++
			return p
		}
	}
	return nil
}

func (c *Client) acquireShared(ctx context.Context, s *session, slot, tries int) (*Lock, Result, error) {
	res := Result{Protocol: ProtocolTwoStep}
	b, joined, err := c.awaitShare(ctx, s, slot)
	switch {
	case err != nil:
		return nil, res, err
	case joined:
		return c.hold(&Lock{c: c, s: s, g: b.grant, share: b}, res)
	}
	m := &machine.AcquireShared{Acquire: machine.Acquire{Tags: &s.tags, Tries: tries, Grant: machine.Grant{Slot: slot}}}
	j, err := c.start(s, m, slot)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endShare(b)
		return nil, res, err
	}
	j.share = b
	_, err = j.drive(ctx)
	res.Tries = m.Tried
	if err != nil {
		j.drop()
		return nil, res, err
	}
	c.mu.Lock()
	j.count()
	b.held, b.refs, b.grant, b.j = true, 1, m.Grant, j
	c.mu.Unlock()
	return c.hold(&Lock{c: c, s: s, g: m.Grant, share: b}, res)
}

// awaitShare is joinShare, but waits until it need not wait any more.
func (c *Client) awaitShare(ctx context.Context, s *session, slot int) (*bit, bool, error) {
	for {
		b, joined, wait, err := c.joinShare(s, slot)
		if wait == nil {
			return b, joined, err
		}
		// It may be being given back while no goroutine polls for that.
		if p := c.pendingOf(slot); p != nil {
			err := p.await(ctx)
			c.waited(p)
			if err != nil {
				return nil, false, fmt.Errorf("%w: %w", ErrNotAcquired, err)
			}
			continue
		}
		select {
		case <-wait:
		case <-s.lost:
			return nil, false, ErrLost
		case <-ctx.Done():
			return nil, false, fmt.Errorf("%w: %w", ErrNotAcquired, ctx.Err())
		}
	}
}
