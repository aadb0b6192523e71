// Package turn has what several goroutines need that take turns at polling for
// all of them.
package turn

import "sync/atomic"

// Turn is held by one goroutine at a time. It is a mutex for which one can wait
// beside other things, and costs less than a channel while nobody waits.
type Turn struct {
	held    atomic.Bool
	waiting atomic.Int32
	free    chan struct{} // has a token after a release while somebody waited
}

func New() Turn { return Turn{free: make(chan struct{}, 1)} }

// Try takes the turn if it is free.
func (t *Turn) Try() bool { return t.held.CompareAndSwap(false, true) }

// Release is for the holder.
func (t *Turn) Release() {
	t.held.Store(false)
	if t.waiting.Load() > 0 {
		select {
		case t.free <- struct{}{}:
		default:
		}
	}
}

// Take waits for the turn, or for one of two channels, and tells whether it has
// the turn. Whoever takes a token tries until the turn is had or another's, who
// will leave a token in turn: none gets lost.
func (t *Turn) Take(one, two <-chan struct{}) bool {
	if t.Try() {
		return true
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	for !t.Try() {
		select {
		case <-t.free:
		case <-one:
			return false
		case <-two:
			return false
		}
	}
	return true
}
