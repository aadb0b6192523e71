package lockoffload

import "sync/atomic"

// turn is held by one goroutine at a time. It is a mutex for which one can wait
// beside other things, and costs less than a channel while nobody waits.
type turn struct {
	held    atomic.Bool
	waiting atomic.Int32
	free    chan struct{} // has a token after a release while somebody waited
}

func newTurn() turn { return turn{free: make(chan struct{}, 1)} }

func (t *turn) try() bool { return t.held.CompareAndSwap(false, true) }

func (t *turn) release() {
	t.held.Store(false)
	if t.waiting.Load() > 0 {
		select {
		case t.free <- struct{}{}:
		default:
		}
	}
}

// take waits for the turn, or for one of two channels, and tells whether it has
// the turn. Whoever takes a token tries until the turn is had or another's, who
// will leave a token in turn: none gets lost.
func (t *turn) take(one, two <-chan struct{}) bool {
	if t.try() {
		return true
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	for !t.try() {
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
