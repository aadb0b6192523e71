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
	if b.WaitUnless(ctx.Done()) {
		return nil
	}
	return ctx.Err()
}

// WaitUnless pauses, and returns false as soon as over is closed.
func (b *Backoff) WaitUnless(over <-chan struct{}) bool {
	t := time.NewTimer(b.double())
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-over:
		return false
	}
}

// Sleep pauses, for loops that ask again and again for what other goroutines are about to do.
func (b *Backoff) Sleep() { time.Sleep(b.double()) }

// double returns the next pause, and doubles the one after it.
func (b *Backoff) double() time.Duration {
	d := b.next
	b.next = min(2*d, b.longest)
	return d
}

// Reset begins with the first pause again, after an attempt that succeeded.
func (b *Backoff) Reset() { b.next = b.first }
