package srd

import (
	"context"
	"runtime"

	"github.com/goverbs/goverbs/verbs"
)

// sleepers are goroutines that wait for the same thing. The endpoint's lock guards them.
type sleepers struct {
	waiting []*verbs.Waiter
	spare   []*verbs.Waiter
}

// wake wakes all of them.
func (s *sleepers) wake(p *pollers) {
	for _, w := range s.waiting {
		p.wake(w)
	}
}

// await waits until ready returns true, and meanwhile polls and does what is due for all.
// ep.mu must be held, and is held again when await returns.
func (ep *Endpoint) await(ctx context.Context, s *sleepers, ready func() bool) error {
	w := s.join()
	ep.polls.enter(w)
	err := ep.awaitBy(ctx, w, ready)
	ep.polls.leave(w)
	s.part(w)
	return err
}

func (ep *Endpoint) awaitBy(ctx context.Context, w *verbs.Waiter, ready func() bool) error {
	if ep.polls.stale {
		ep.pump()
	}
	for {
		w.Reset()
		if err := ep.open(); err != nil {
			return err
		}
		if ready() {
			return nil
		}
		rest := ep.polls.yield.Due(ep.polls.clock)
		ep.mu.Unlock()
		if rest {
			runtime.Gosched()
		}
		err := ep.d.Wait(ctx, w)
		ep.mu.Lock()
		if err != nil && !ready() {
			ep.pump() // a packet may depend on it
			if oerr := ep.open(); oerr != nil {
				return oerr
			}
			return err
		}
		// What can wait is sent with what the program does next.
		if ep.polls.stale && (!ready() || ep.driver.urgent() || ep.e.Wait() == 0) {
			ep.pump()
		}
	}
}

func (s *sleepers) join() *verbs.Waiter {
	var w *verbs.Waiter
	if n := len(s.spare); n > 0 {
		w, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		w = new(verbs.Waiter)
	}
	s.waiting = append(s.waiting, w)
	return w
}

func (s *sleepers) part(w *verbs.Waiter) {
	s.waiting = without(s.waiting, w)
	s.spare = append(s.spare, w)
}

// without takes a waiter out of a list, and does not keep its order.
func without(list []*verbs.Waiter, w *verbs.Waiter) []*verbs.Waiter {
	for i, v := range list {
		if v == w {
			last := len(list) - 1
			list[i], list[last] = list[last], nil
			return list[:last]
		}
	}
	return list
}

// ring is a queue that allocates only when it grows.
type ring[T any] struct {
	items    []T // as many as a power of two
	first, n int
}

func (r *ring[T]) push(v T) {
	if r.n == len(r.items) {
		grown := make([]T, max(16, 2*r.n))
		for i := range r.n {
			grown[i] = r.items[(r.first+i)&(r.n-1)]
		}
		r.items, r.first = grown, 0
	}
	r.items[(r.first+r.n)&(len(r.items)-1)] = v
	r.n++
}

func (r *ring[T]) pop() (v T) {
	v, r.items[r.first] = r.items[r.first], v
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.n--
	return v
}
