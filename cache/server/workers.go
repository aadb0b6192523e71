package server

import "sync"

// workers is a pool of worker goroutines. One of them handles a client's message, and not a new
// goroutine: a new one's stack grows several times on the way down to the device, which was a ninth of
// what workload A cost. Workers belong to no client, so they are as few as there are things under way,
// and those that had nothing to do since the last trim end. The zero value is ready.
type workers struct {
	mu    sync.Mutex
	idle  []*worker // the one that was busy last is last
	least int       // the smallest length of idle since trim
	over  bool
	all   sync.WaitGroup
}

// maxIdle is how many workers wait for something to do, at most.
const maxIdle = 16

// worker is a worker.
type worker struct {
	next chan func() // nil: it is to end
}

// run executes f on a worker, and does not wait.
func (c *workers) run(f func()) {
	c.mu.Lock()
	h := c.take()
	c.mu.Unlock()
	if h != nil {
		h.next <- f // does not block: the worker is idle, and the channel has room for one
		return
	}
	h = &worker{next: make(chan func(), 1)}
	h.next <- f
	c.all.Go(func() {
		for f := <-h.next; f != nil; f = <-h.next {
			f()
			if !c.rest(h) {
				return
			}
		}
	})
}

// take returns an idle worker, nil if there is none. c.mu must be held.
func (c *workers) take() *worker {
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

// rest reports whether a worker that is done is to wait for something else.
func (c *workers) rest(h *worker) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || len(c.idle) == maxIdle {
		return false
	}
	c.idle = append(c.idle, h)
	return true
}

// trim ends as many workers as had nothing to do since it was called last.
func (c *workers) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := c.least; n > 0; n-- {
		c.take().next <- nil
	}
	c.least = len(c.idle)
}

// close ends all workers, and waits until the busy ones are done.
func (c *workers) close() {
	c.mu.Lock()
	c.over = true
	for h := c.take(); h != nil; h = c.take() {
		h.next <- nil
	}
	c.mu.Unlock()
	c.all.Wait()
}
