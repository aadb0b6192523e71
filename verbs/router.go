package verbs

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/turn"
)

// router hands the completions of a queue to the requesters that it serves. There
// is no goroutine of its own: of those who wait one polls for all, and whoever
// has its answer passes the turn on.
//
// The number of a request says whose it is:
//
//	bits 63-48  requester, by its place in the table
//	bits 47-24  slot of the requester
//	bits 23-1   which use of the slot
//	bit  0      last request of its list: with it the slot is done
type router struct {
	cq    *CQ
	table atomic.Pointer[[]*Requester] // nil: free, or retired

	// Changed under the queue's lock.
	serves   int
	reserved int      // completions that may be in the queue at a time
	vacant   []uint64 // places

	wanted atomic.Int32 // who wants the turn before all that wait for completions

	turn turn.Turn // of who polls, and owns the rest
	wcs  [64]WC
	// park has the turn's holder parked by a goroutine that does nothing else, so
	// that callers can listen to their contexts: a parked goroutine cannot, and
	// to have each context wake it would allocate.
	park chan struct{}
	// stray counts completions of nobody: requests that were posted past the
	// requesters, or of a queue pair that was taken down.
	stray atomic.Uint64
}

const (
	mostRequesters = 1 << 16
	mostSlots      = 1 << 24
	genMask        = 1<<23 - 1
)

// route makes a requester's queue pair complete to it. The queue is made longer
// if all that may complete does not fit.
func (c *CQ) route(r *Requester, n int) error {
	const op = "route completions of"
	c.routing.Lock()
	defer c.routing.Unlock()
	rt := c.router.Load()
	if rt == nil {
		if rt = c.idle; rt == nil {
			rt = &router{cq: c, turn: turn.New()}
			rt.table.Store(&[]*Requester{})
		}
	}
	if need := rt.reserved + n; need > c.Depth() {
		if err := c.grow(need); err != nil {
			return opError(op, c.life.label, ErrAttributes, "depth ", c.Depth(), ", and its queue pairs may complete ", need, " requests at a time: ", err)
		}
	}
	table := slices.Clone(*rt.table.Load())
	if last := len(rt.vacant) - 1; last >= 0 {
		r.index, rt.vacant = rt.vacant[last], rt.vacant[:last]
	} else if r.index = uint64(len(table)); r.index < mostRequesters {
		table = append(table, nil)
	} else {
		return opError(op, c.life.label, ErrAttributes, mostRequesters, " requesters")
	}
	r.router = rt
	table[r.index] = r
	rt.table.Store(&table)
	rt.reserved += n
	if rt.serves++; rt.serves == 1 {
		rt.park = make(chan struct{}, 1)
		c.router.Store(rt)
		c.evict()
		if c.wait.file != nil {
			go rt.parker(rt.park)
		}
	}
	return nil
}

func (c *CQ) grow(depth int) error {
	if depth > c.dev.attr.MaxCQE {
		return opError("resize", c.life.label, ErrAttributes, "the device allows ", c.dev.attr.MaxCQE)
	}
	return c.resize(depth)
}

// unroute gives back what route took. If the requester was cut off, a completion
// may still come that names its place: that is not used again.
func (c *CQ) unroute(r *Requester, n int, cutOff bool) {
	c.routing.Lock()
	defer c.routing.Unlock()
	rt := r.router
	table := slices.Clone(*rt.table.Load())
	table[r.index] = nil
	if !cutOff {
		rt.vacant = append(rt.vacant, r.index)
	}
	rt.table.Store(&table)
	rt.reserved -= n
	if rt.serves--; rt.serves == 0 {
		c.router.Store(nil)
		c.idle = rt
		close(rt.park)
	}
}

// routed refuses calls that would take completions away from requesters.
func (c *CQ) routed(op string) error {
	if c == nil || c.router.Load() == nil { // nil: see Wrap
		return nil
	}
	return opError(op, c.life.label, ErrInUse, "a Requester takes its completions")
}

// look has completions handed out, for who has the turn, and gives the turn
// away. It may come back without any. Its error is the context's, or that of a
// queue that is broken.
func (rt *router) look(ctx context.Context) error {
	if rt.wanted.Load() > 0 {
		rt.turn.Release()
		time.Sleep(20 * time.Microsecond)
		return nil
	}
	c := rt.cq
	err := ctx.Err()
	n := 0
	if err == nil {
		n, err = c.poll(rt.wcs[:], c.spin)
	}
	switch {
	case n > 0 || err != nil:
	case c.wait.file == nil: // made with PollOnly
		runtime.Gosched()
	case ctx.Done() == nil:
		n, err = c.wait.park(ctx, rt.wcs[:])
	default:
		rt.park <- struct{}{} // with the turn
		return nil
	}
	rt.deliver(rt.wcs[:n])
	rt.turn.Release()
	return err
}

// parker parks for those who gave it the turn.
func (rt *router) parker(park <-chan struct{}) {
	for range park {
		n, err := rt.cq.wait.park(context.Background(), rt.wcs[:])
		rt.deliver(rt.wcs[:n])
		rt.turn.Release()
		if err != nil {
			go rt.broken(err) // others may have it park meanwhile
		}
	}
}

// glance takes what is there, in turn.
func (rt *router) glance() int {
	n, err := rt.cq.poll(rt.wcs[:], 0)
	if err != nil {
		return 0
	}
	rt.deliver(rt.wcs[:n])
	return n
}

// deliver hands completions to their slots, in turn.
func (rt *router) deliver(wcs []WC) {
	if len(wcs) == 0 {
		return
	}
	table := *rt.table.Load()
	for i := range wcs {
		id := wcs[i].wc.ID
		at := id >> 48
		if at >= uint64(len(table)) || table[at] == nil || !table[at].deliver(id, &wcs[i]) {
			rt.stray.Add(1)
		}
	}
}

// broken ends all requesters of a queue that can no longer be polled. Who calls
// it has not the turn.
func (rt *router) broken(err error) {
	for _, r := range *rt.table.Load() {
		if r != nil {
			r.takeDown(err)
		}
	}
}

// hold takes the turn from whoever waits for completions.
func (rt *router) hold() {
	rt.wanted.Add(1)
	defer rt.wanted.Add(-1)
	for pause := 10 * time.Microsecond; !rt.turn.Try(); pause = min(2*pause, time.Millisecond) {
		rt.cq.wake()
		time.Sleep(pause)
	}
}
