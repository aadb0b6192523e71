// Package virtual has the time of simulations: what is to happen waits in a queue and
// happens in order, with nothing in between. A run that asks for the same things
// happens the same way again. It is for tests.
package virtual

import (
	"container/heap"
	"fmt"
	"time"
)

// Queue has events of a kind, the earliest first; of those at one time the one that
// was added first. The zero value is empty, and its time is 0.
type Queue[E any] struct {
	Now   time.Duration
	Added uint64 // events so far
	Trace uint64 // of all that have happened, to compare runs

	heap events[E]
}

type item[E any] struct {
	at  time.Duration
	seq uint64
	e   E
}

// Add schedules an event.
func (q *Queue[E]) Add(at time.Duration, e E) {
	q.Added++
	heap.Push(&q.heap, &item[E]{at, q.Added, e})
}

// Next advances Now to the next event, and returns it. If there is none up to until,
// ok is false and Now advances to until.
func (q *Queue[E]) Next(until time.Duration) (e E, ok bool) {
	if len(q.heap) == 0 || q.heap[0].at > until {
		q.Now = max(q.Now, until)
		return e, false
	}
	first := heap.Pop(&q.heap).(*item[E])
	q.Now = first.at
	q.Trace = q.Trace*1099511628211 ^ uint64(first.at) ^ first.seq<<32
	return first.e, true
}

// events implements [heap.Interface]. Pointers, since it takes them without allocating.
type events[E any] []*item[E]

func (h events[E]) Len() int      { return len(h) }
func (h events[E]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h events[E]) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h *events[E]) Push(x any) { *h = append(*h, x.(*item[E])) }

func (h *events[E]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
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

// Wrong notes a failure.
func (w *World) Wrong(format string, args ...any) {
	if w.Err == nil {
		w.Err = fmt.Errorf(format, args...)
	}
}
