// Package virtual has the time of simulations: what is to happen waits in a queue and
// happens in order, with nothing in between. A run that asks for the same things
// happens the same way again. It is for tests.
package virtual

import (
	"fmt"
	"time"
)

// Queue has events of a kind, the earliest first; of those at one time the one that
// was added first. The zero value is empty, and its time is 0.
type Queue[E any] struct {
	Now   time.Duration
	Added uint64 // events so far
	Trace uint64 // of all that have happened, to compare runs

	heap []item[E]
}

type item[E any] struct {
	at  time.Duration
	seq uint64
	e   E
}

func (a *item[E]) before(b *item[E]) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// Add has an event happen at a time.
func (q *Queue[E]) Add(at time.Duration, e E) {
	q.Added++
	h := append(q.heap, item[E]{at, q.Added, e})
	for i := len(h) - 1; i > 0 && h[i].before(&h[(i-1)/2]); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
	q.heap = h
}

// Next lets time pass to the next event, and answers that; ok is false if there is
// none until then, which it is afterwards.
func (q *Queue[E]) Next(until time.Duration) (e E, ok bool) {
	if len(q.heap) == 0 || q.heap[0].at > until {
		q.Now = max(q.Now, until)
		return e, false
	}
	first := q.pop()
	q.Now = first.at
	q.Trace = q.Trace*1099511628211 ^ uint64(first.at) ^ first.seq<<32
	return first.e, true
}

func (q *Queue[E]) pop() item[E] {
	h := q.heap
	first, n := h[0], len(h)-1
	h[0], h[n] = h[n], item[E]{}
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < n && h[c+1].before(&h[c]) {
			c++
		}
		if c >= n || !h[c].before(&h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	q.heap = h
	return first
}

// World is a queue of functions, with what was found wrong first.
type World struct {
	Queue[func()]
	Err error
}

// After calls a function after some time.
func (w *World) After(d time.Duration, f func()) { w.Add(w.Now+d, f) }

// Run lets time pass until then, or until something is wrong.
func (w *World) Run(until time.Duration) {
	for w.Err == nil {
		f, ok := w.Next(until)
		if !ok {
			break
		}
		f()
	}
}

// Wrong notes what must not be.
func (w *World) Wrong(format string, args ...any) {
	if w.Err == nil {
		w.Err = fmt.Errorf(format, args...)
	}
}
