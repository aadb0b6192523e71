// Package chanmutex has a mutex that a goroutine can wait for beside channels
// of its own.
package chanmutex

import "sync/atomic"

// A Mutex is acquired by Try, or waited for beside channels by Take. Without contention it costs
// less than a channel.
type Mutex struct {
	held    atomic.Bool
	waiting atomic.Int32
	free    chan struct{} // has a token after a release while a goroutine waited
}

func New() Mutex { return Mutex{free: make(chan struct{}, 1)} }

// Try acquires the mutex if it is free, and reports whether it did.
func (t *Mutex) Try() bool { return t.held.CompareAndSwap(false, true) }

// Release releases the mutex, which the caller must hold.
func (t *Mutex) Release() {
	t.held.Store(false)
	if t.waiting.Load() > 0 {
		select {
		case t.free <- struct{}{}:
		default:
		}
	}
}

// Take waits for the mutex, or for one of two channels, and reports whether it has
// it. A goroutine that takes a token of free tries for the mutex, and if it
// fails, the holder will leave another token: no wake is lost.
func (t *Mutex) Take(one, two <-chan struct{}) bool {
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
