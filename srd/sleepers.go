package srd

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// sleepers are goroutines that wait for the same thing. The endpoint's lock guards them.
type sleepers struct {
	waiting []*verbs.Waiter
	spare   []*verbs.Waiter
}

// wake is called with the lock held, also by whoever polls.
func (s *sleepers) wake(ep *Endpoint) {
	for _, w := range s.waiting {
		ep.wake(w)
	}
}

// await waits until there is what ready looks for. It is called with the lock held, and
// returns so. Whoever waits polls, and does what is due, for all.
func (ep *Endpoint) await(ctx context.Context, s *sleepers, ready func() bool) error {
	for {
		if err := ep.open(); err != nil {
			return err
		}
		ep.pump()
		if ready() {
			return nil
		}
		var w *verbs.Waiter
		if n := len(s.spare); n > 0 {
			w, s.spare = s.spare[n-1], s.spare[:n-1]
		} else {
			w = new(verbs.Waiter)
		}
		w.Reset()
		s.waiting = append(s.waiting, w)
		ep.mu.Unlock()
		err := ep.links.d.Wait(ctx, w)
		ep.mu.Lock()
		for i, v := range s.waiting {
			if v == w {
				last := len(s.waiting) - 1
				s.waiting[i] = s.waiting[last]
				s.waiting = s.waiting[:last]
				break
			}
		}
		s.spare = append(s.spare, w)
		if err != nil && !ready() {
			ep.pump() // a packet may rely on it
			if oerr := ep.open(); oerr != nil {
				return oerr
			}
			return err
		}
	}
}

// ring is a queue that grows, and allocates nothing after that.
type ring[T any] struct {
	items    []T
	first, n int
}

func (r *ring[T]) push(v T) {
	if r.n == len(r.items) {
		grown := make([]T, max(16, 2*r.n))
		for i := range r.n {
			grown[i] = r.items[(r.first+i)%len(r.items)]
		}
		r.items, r.first = grown, 0
	}
	r.items[(r.first+r.n)%len(r.items)] = v
	r.n++
}

func (r *ring[T]) pop() (v T) {
	v, r.items[r.first] = r.items[r.first], v
	r.first = (r.first + 1) % len(r.items)
	r.n--
	return v
}
