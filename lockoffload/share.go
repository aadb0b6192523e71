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

// endShare ends the use of a bit; that of an older session may be gone.
func (c *Client) endShare(b *bit) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// pendingOf returns a pending commit of the slot, or nil.
func (c *Client) pendingOf(slot int) *Commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.pending {
		if p.slot == slot {
			return p
		}
	}
	return nil
}

func (c *Client) acquireShared(ctx context.Context, s *session, slot, tries int) (*Lock, Result, error) {
	res := Result{Protocol: ProtocolTwoStep}
	var b *bit
	for b == nil {
		got, joined, wait, err := c.joinShare(s, slot)
		if err != nil {
			return nil, res, err
		}
		if joined {
			return c.hold(&Lock{c: c, s: s, g: got.grant, share: got}, res)
		}
		b = got
		if wait == nil {
			continue
		}
		// It may be being given back while no goroutine polls for that.
		if p := c.pendingOf(slot); p != nil {
			if err := p.await(ctx); err != nil {
				return nil, res, fmt.Errorf("%w: %w", ErrNotAcquired, err)
			}
			continue
		}
		select {
		case <-wait:
		case <-s.lost:
			return nil, res, ErrLost
		case <-ctx.Done():
			return nil, res, fmt.Errorf("%w: %w", ErrNotAcquired, ctx.Err())
		}
	}
	kept := false
	var j *job
	var m machine.SharedMachine
	m = machine.NewSharedMachine(&c.l, &s.tags, slot, tries, func() {
		// Only the end in which the lock is held leaves the bit in use.
		kept = true
		c.mu.Lock()
		b.held, b.refs, b.grant, b.j = true, 1, m.Granted(), j
		c.mu.Unlock()
	})
	j, err := c.start(m, slot)
	if err != nil {
		c.endShare(b)
		return nil, res, err
	}
	j.after = func() {
		if !kept {
			c.endShare(b)
		}
	}
	j.s = s
	_, err = j.drive(ctx)
	res.Tries = m.Attempts()
	if err != nil {
		j.drop()
		return nil, res, err
	}
	return c.hold(&Lock{c: c, s: s, g: m.Granted(), share: b}, res)
}
