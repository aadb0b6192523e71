// Package turn is a lock for goroutines that take turns at polling for all of
// them.
package turn

import "sync/atomic"

// Turn is a mutex that can be waited for beside other channels. Without contention it costs
// less than a channel.
type Turn struct {
	held    atomic.Bool
	waiting atomic.Int32
	free    chan struct{} // has a token after a release while a goroutine waited
}

func New() Turn { return Turn{free: make(chan struct{}, 1)} }

// Try acquires the turn if it is free, and reports whether it did.
func (t *Turn) Try() bool { return t.held.CompareAndSwap(false, true) }

// Release releases the turn, which the caller must hold.
func (t *Turn) Release() {
	t.held.Store(false)
	if t.waiting.Load() > 0 {
		select {
		case t.free <- struct{}{}:
		default:
		}
	}
}

// Take waits for the turn, or for one of two channels, and reports whether it has
// the turn. A goroutine that takes a token of free tries for the turn, and if it
// fails, the holder will leave another token: no wake is lost.
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
