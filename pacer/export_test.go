package pacer

import (
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Receives are the places of receives that the pacer keeps.
func (p *Pacer) Receives() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.recvs)
}

// Lose has the queue say that it can no longer be polled.
func (c *CQ) Lose(err error) { (*engine)(c).Lost(err) }

var _ verbs.Handler = (*engine)(nil)

// ReapIn is how long held requests wait before the pacer polls by itself.
func (p *Pacer) ReapIn() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reapIn
}
