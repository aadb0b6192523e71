// Package chanmutex has a mutex that a goroutine can wait for beside channels
// of its own.
package chanmutex

import "sync/atomic"

// A Mutex is acquired by Try, or waited for beside channels by Take. Without contention it costs
// less than a channel.
type Mutex struct {
	held    atomic.Bool
	waiting atomic.Int32
	woken   atomic.Bool   // a token is in free, or with a goroutine that has not tried since
	free    chan struct{} // has a token after a release while a goroutine waited
}

func New() Mutex { return Mutex{free: make(chan struct{}, 1)} }

// Try acquires the mutex if it is free, and reports whether it did.
func (t *Mutex) Try() bool { return t.held.CompareAndSwap(false, true) }

// Release releases the mutex, which the caller must hold. It wakes one goroutine at a time: a
// holder that acquires the mutex again at once would otherwise wake one in vain each time.
func (t *Mutex) Release() {
	t.held.Store(false)
	if t.waiting.Load() > 0 {
		t.wake()
	}
}

func (t *Mutex) wake() {
	if t.woken.CompareAndSwap(false, true) {
		t.free <- struct{}{}
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
			t.woken.Store(false) // before it tries: a release from here on wakes again
		case <-one:
			return false
		case <-two:
			return false
		}
	}
	return true
}
