package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// spins is how often an empty queue is polled in one crossing into C: some ten
// microseconds.
const spins = 1000

// restTime is how long a loop goes without a scheduling point: less than the
// 10 ms after which the runtime interrupts it, and that it may be off the CPU
// in between.
const restTime = int64(4 * time.Millisecond)

// queue takes completions, by polling or by events.
type queue struct {
	cq     *verbs.CQ
	events bool
	yield  bool
	beat   *heartbeat
	rested int64 // clock at the last scheduling point
}

// spins: a completion does not come while the only CPU is busy looking for it.
func (q *queue) spins() int {
	if q.yield {
		return 0
	}
	return spins
}

// post posts a batch and takes what completions are there, or come while it
// spins; there may be none.
func (q *queue) post(b *verbs.Batch, wcs []verbs.WC, spins int) (int, error) {
	if q.events {
		_, err := b.Post()
		return 0, err
	}
	_, n, err := b.PostPoll(q.cq, wcs, spins)
	if n > 0 {
		q.beat.tick()
	}
	return n, err
}

// take waits until there are completions.
func (q *queue) take(ctx context.Context, wcs []verbs.WC) (int, error) {
	var n int
	var err error
	if q.events {
		n, err = q.cq.Wait(ctx, wcs)
	} else {
		n, err = q.poll(ctx, wcs)
	}
	if n > 0 {
		q.beat.tick()
	}
	return n, err
}

func (q *queue) poll(ctx context.Context, wcs []verbs.WC) (int, error) {
	for empty := uint(1); ; empty++ {
		n, err := q.cq.PollSpin(wcs, q.spins())
		if n > 0 || err != nil {
			return n, err
		}
		if q.yield {
			yieldCPU()
		}
		if empty%restAfter == 0 {
			if err := q.rest(ctx, clock()); err != nil {
				return 0, err
			}
		}
	}
}

// restAfter is how many empty polls go by between two looks at the clock.
const restAfter = 8

// rest makes a scheduling point if the last one was long before now.
func (q *queue) rest(ctx context.Context, now int64) error {
	if now-q.rested < restTime {
		return nil
	}
	q.rested = now
	return rest(ctx)
}

// rest looks whether a fruitless wait is to end. It is a scheduling point too:
// the runtime interrupts goroutines that run for 10 ms without one.
func rest(ctx context.Context) error {
	runtime.Gosched()
	return ctx.Err()
}

// heartbeat counts what arrives, so that a test does not wait for ever when its
// messages are lost.
type heartbeat struct{ n atomic.Uint64 }

// tick has one caller at a time: no read-modify-write is needed.
func (h *heartbeat) tick() { h.n.Store(h.n.Load() + 1) }

// stallTime is how long a test may go without anything arriving.
const stallTime = 10 * time.Second

// watch cancels a test that has stalled, until stop is
// called.
func (h *heartbeat) watch(cancel context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(stallTime)
		defer t.Stop()
		for last := uint64(0); ; {
			select {
			case <-done:
				return
			case <-t.C:
			}
			n := h.n.Load()
			if n == last {
				cancel(errStalled)
				return
			}
			last = n
		}
	}()
	return func() { close(done) }
}
