package dci

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goverbs/goverbs/ci/lab"
)

var errFlushed = errors.New("flushed")

// world is virtual time.
type world struct {
	now    time.Duration
	events events
	seq    int
	rng    *rand.Rand
	loss   float64
	err    error
	trace  uint64 // of all events, to compare runs
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (w *world) after(d time.Duration, f func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + d, w.seq, f})
}

func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until && w.err == nil {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.trace = w.trace*1099511628211 ^ uint64(e.at) ^ uint64(e.seq)<<32
		e.do()
	}
	w.now = max(w.now, until)
}

func (w *world) wrong(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// seeds is how many random programs to run: few on an emulated machine, where
// they say nothing that they do not say elsewhere.
func seeds(all, short uint64) uint64 {
	switch {
	case lab.In():
		return 40
	case testing.Short():
		return short
	}
	return all
}
