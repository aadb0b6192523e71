package dc

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// Pending are requests of [Initiator.Start], for whose end somebody waits once. It is passed as it is, and
// belongs to one goroutine at a time.
type Pending struct {
	i *Initiator
	p *Peer
	c *call
}

// Start begins several requests of one target together, as [Initiator.Post] does, and whoever has begun
// them waits for them all: their completions come to no Poll, and those that are Quiet are waited for, too.
// If not all were taken, the others are waited for all the same, and Wait has the error; with an error
// of Start none was. Somebody has to wait: before that the device has the requests' memory, and nobody may
// poll for them.
func (i *Initiator) Start(p *Peer, rs []Request) (Pending, error) {
	i.mu.Lock()
	c := i.newCall(len(rs))
	n, looked, err := i.give(p, rs, c, -1)
	found := i.found
	if c.left -= len(rs) - n; err != nil {
		c.err = err
	}
	none := n == 0
	if none {
		i.release(c)
	}
	i.unlock()
	if looked {
		found.Deliver()
	}
	if none {
		return Pending{}, err
	}
	return Pending{i, p, c}, nil
}

// Wait waits for all of the requests, and answers the first error: that of the one which ended first
// with one. When it has returned, the device touches their memory no more, unless the error is a
// [verbs.InFlightError]: what the end of ctx does is as with [Initiator.Do]. The zero value, of which there are no requests, is over.
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

// PD is the protection domain that the requests' local memory has to be in.
func (i *Initiator) PD() *verbs.PD { return i.cfg.PD }
