package dc

import (
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// entry is a request that was taken and has not ended.
type entry struct {
	Request
	peer     *Peer
	call     *call // that waits for it; nil: its completion is for Poll
	seq      uint64
	deadline time.Duration // of waiting; 0: none, or it has not waited yet
	ended    bool
	silent   bool  // it has no completion, but that of a later one
	before   int32 // requests right before it that are over with it, without completions of their own
	err      error
}

// ring are the requests that a queue pair has, by position. Positions only grow;
// the number of a work request names queue pair and position, so a completion
// finds its request in any goroutine, and one of a request that is over finds none.
type ring struct {
	entries    []entry
	mask       uint32
	head, tail uint32
}

func newRing(depth int) ring {
	n := 1 << bits.Len(uint(depth-1))
	return ring{entries: make([]entry, n), mask: uint32(n - 1)}
}

func (r *ring) at(pos uint32) *entry { return &r.entries[pos&r.mask] }

func (r *ring) len() int { return int(r.tail - r.head) }

// has reports whether a position is of a request that has not ended.
func (r *ring) has(pos uint32) bool { return pos-r.head < r.tail-r.head && !r.at(pos).ended }

// tagBits are those of the position; the queue pair's index is above them.
const tagBits = 32

func tag(index int, pos uint32) uint64 { return uint64(index)<<tagBits | uint64(pos) }

// fill takes requests from their caller.
func (i *Initiator) fill(e *entry, p *Peer, r *Request, c *call) {
	a := p.a
	a.posted++
	e.Request, e.peer, e.call, e.seq = *r, p, c, a.posted
	e.deadline, e.ended, e.err = 0, false, nil
}

// finish ends a request. The entry is free afterwards.
func (i *Initiator) finish(e *entry, err error) {
	p := e.peer
	a := p.a
	a.ended++
	if err != nil {
		a.failed++
	}
	switch c := e.call; {
	case c != nil:
		if c.left--; c.err == nil {
			c.err = err
		}
		if c.left == 0 {
			c.waiter.Wake()
			i.woken = i.woken || i.outside > 0
		}
	case e.Quiet && err == nil:
	default:
		i.done.push(Completion{ID: e.ID, Peer: p, Op: e.Op, Err: err})
	}
	if len(a.flushes) > 0 {
		i.flushed(a, e.seq)
	}
	e.peer, e.call = nil, nil
	if e.err != nil || e.List != nil {
		e.err, e.List = nil, nil
	}
}

// flushed ends the calls of Flush that wait for a request.
func (i *Initiator) flushed(a *activity, seq uint64) {
	a.flushes = slices.DeleteFunc(a.flushes, func(f *flush) bool {
		if seq <= f.mark {
			f.left--
		}
		if f.left > 0 {
			return false
		}
		f.waiter.Wake()
		i.woken = i.woken || i.outside > 0
		return true
	})
}

// completions is a queue of what Poll returns.
type completions struct {
	list []Completion
	head int
}

func (q *completions) push(c Completion) { q.list = append(q.list, c) }

func (q *completions) len() int { return len(q.list) - q.head }

func (q *completions) take(cs []Completion) (n int) {
	for n < len(cs) && q.head < len(q.list) { // mostly one
		c := &q.list[q.head]
		cs[n] = *c
		c.Peer, c.Err = nil, nil
		q.head++
		n++
	}
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return n
}

var _ verbs.Handler = (*engine)(nil)

// engine takes the completions of an initiator's requests.
type engine struct{ i *Initiator }

// Completed implements [verbs.Engine].
func (e *engine) Completed(tag uint64, wc *verbs.WC) {
	e.i.mu.Lock()
	e.i.completed(tag, wc)
	e.i.mu.Unlock()
}

// completed takes a completion. mu must be held.
func (i *Initiator) completed(tag uint64, wc *verbs.WC) {
	if i.open() {
		i.be.completed(tag, wc)
		i.wake()
	}
}

// Lost implements [verbs.Engine].
func (e *engine) Lost(err error) {
	i := e.i
	i.mu.Lock()
	if i.lost == nil {
		i.lost = opError("poll", "initiator", err)
	}
	be := i.be
	i.mu.Unlock()
	i.cancel()
	i.halt.Do(func() {
		if be != nil {
			be.halt()
		}
		close(i.halted)
	})
	i.wakeAll()
}

// resetAll makes queue pairs forget their requests.
func (i *Initiator) resetAll(qps []*verbs.QP) {
	for _, qp := range qps {
		if err := qp.ToReset(); err != nil && !errors.Is(err, ErrClosed) {
			i.cfg.Logger.Error("dc: queue pair is not reset", "err", err)
		}
	}
}
