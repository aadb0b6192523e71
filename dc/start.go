package dc

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// Pending are requests of [Initiator.Start], to be waited for once. It is passed by value, and
// belongs to one goroutine at a time.
type Pending struct {
	i *Initiator
	p *Peer
	c *call
}

// Start begins several requests of one target together, as [Initiator.Post] does.
// [Pending.Wait] waits for them all: their completions come to no Poll, and those that are
// Quiet are waited for, too. If Start returns an error, nothing was taken, and there is nothing
// to wait for. Otherwise Wait must be called: until it returns the device has the requests' memory, and
// perhaps no goroutine polls for them. If only some were taken, Start returns nil, and Wait waits for
// those and returns the error, such as [ErrQueueFull].
func (i *Initiator) Start(p *Peer, rs []Request) (Pending, error) {
	i.mu.Lock()
	c := i.newCall(len(rs))
	n, _, _, err := i.give(p, rs, c, -1)
	if c.left -= len(rs) - n; err != nil {
		c.err = err
	}
	none := n == 0
	if none {
		i.release(c)
	}
	i.unlock()
	if none {
		return Pending{}, err
	}
	return Pending{i, p, c}, nil
}

// Wait waits for all of the requests, and returns the first error: that of the one which ended first
// with one. When it has returned, the device touches their memory no more, unless the error is a
// [verbs.InFlightError]: the end of ctx has the same effect as with [Initiator.Do]. The zero value has
// no requests, and Wait returns at once.
func (w Pending) Wait(ctx context.Context) error {
	i := w.i
	if i == nil {
		return nil
	}
	i.mu.Lock()
	i.doers = append(i.doers, &w.c.waiter)
	i.unlock()
	return i.finishWait(ctx, w.p, w.c)
}

// PD returns the protection domain that the requests' local memory has to be in.
func (i *Initiator) PD() *verbs.PD { return i.cfg.PD }
