// Package backoff has pauses between attempts, which grow.
package backoff

import (
	"context"
	"time"
)

// Backoff is a pause that doubles with each attempt.
type Backoff struct{ next, first, longest time.Duration }

// New returns a Backoff that begins with first and grows to longest.
func New(first, longest time.Duration) *Backoff { return &Backoff{first, first, longest} }

// Wait pauses. If the context ends before that it returns the context's error.
func (b *Backoff) Wait(ctx context.Context) error {
	t := time.NewTimer(b.next)
	defer t.Stop()
	b.next = min(2*b.next, b.longest)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reset begins with the first pause again, after an attempt that succeeded.
func (b *Backoff) Reset() { b.next = b.first }
