package server

import "sync"

// crew are goroutines that do one thing after another. What a client's message takes is done by one of
// them and not by a new one: a new goroutine's stack grows several times on the way down to the device,
// which was a ninth of what workload A cost. They belong to no client, so they are as few as there are
// things under way, and those that nothing was for since the last trim go. The zero value is ready.
type crew struct {
	mu    sync.Mutex
	idle  []*hand // who was busy last is last
	least int     // of those, since trim
	over  bool
	all   sync.WaitGroup
}

// mostIdle is how many of a crew wait for something to do.
const mostIdle = 16

// hand is one of a crew.
type hand struct {
	next chan func() // nil: it is to go
}

// run has f be done, and waits for nothing.
func (c *crew) run(f func()) {
	c.mu.Lock()
	h := c.take()
	c.mu.Unlock()
	if h != nil {
		h.next <- f // there is room: it waits, for one thing
		return
	}
	h = &hand{next: make(chan func(), 1)}
	c.all.Go(func() {
		for ; f != nil; f = <-h.next {
			f()
			if !c.rest(h) {
				return
			}
		}
	})
}

// take is who waits, nil if nobody does. The mutex is held.
func (c *crew) take() *hand {
	n := len(c.idle) - 1
	if n < 0 {
		return nil
	}
	h := c.idle[n]
	c.idle[n] = nil
	c.idle = c.idle[:n]
	c.least = min(c.least, n)
	return h
}

// rest tells whether who is done is to wait for something else.
func (c *crew) rest(h *hand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || len(c.idle) == mostIdle {
		return false
	}
	c.idle = append(c.idle, h)
	return true
}

// trim has those go that had nothing to do since it was called last.
func (c *crew) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := c.least; n > 0; n-- {
		c.take().next <- nil
	}
	c.least = len(c.idle)
}

// close has all go, and waits until those are done that do something.
func (c *crew) close() {
	c.mu.Lock()
	c.over = true
	for h := c.take(); h != nil; h = c.take() {
		h.next <- nil
	}
	c.mu.Unlock()
	c.all.Wait()
}
