// Package dci has the state machine of dc's hardware back end: it decides which DCI
// and stream serve a target, and leads streams and DCIs out of error. It does no
// I/O and needs no time: a driver tells it what happened, and carries out what it
// asks for.
package dci

import (
	"errors"
	"slices"
)

// state is how far a DCI is with its errors.
type state uint8

const (
	ready      state = iota
	failedDCI        // in error; waits until everything in it has completed
	recovering       // on its way through RESET
	lostDCI          // could not be brought back
)

// request is a request in a DCI.
type request struct {
	peer *Peer
	done bool
}

// stream is requests that are carried out in order. A DCI without streams
// is taken for one.
type stream struct {
	peers       int // that it serves
	outstanding int
	failed      bool // takes no more requests until it has been reset
	resetting   bool
}

// DCI is an initiator context of the hardware.
//
// Requests of different streams complete in any order, but the send queue is a
// ring: the place of a request is free only when all before it have completed.
// So what bounds a post is not how many requests are outstanding, but how far
// the oldest one is behind.
type DCI struct {
	Index       int
	state       state
	streams     []stream
	peers       int
	outstanding int
	pending     int // requests of the peers that wait
	ring        []request
	head, tail  uint64  // of the ring; they only grow
	waiting     []*Peer // for room, in order
	recoveries  int     // a state asked for before the last one means nothing
}

func (d *DCI) room() int { return len(d.ring) - int(d.tail-d.head) }

// Ready reports whether the DCI works.
func (d *DCI) Ready() bool { return d.state == ready }

// Streams returns how many streams it has; one means none.
func (d *DCI) Streams() int { return len(d.streams) }

// Position returns where the k-th request goes that is posted next. Positions only grow.
func (d *DCI) Position(k int) uint32 { return uint32(d.tail) + uint32(k) }

// idle reports whether the DCI works and serves no peer.
func (d *DCI) idle() bool { return d.state == ready && d.peers == 0 }

// load returns the number of requests that one posted now would stand behind.
func (d *DCI) load() int { return d.outstanding + d.pending }

// Peer is what the initiator knows of a DCT. It keeps its DCI and stream as
// long as it has requests there.
type Peer struct {
	Owner       any // the driver's
	dci         *DCI
	last        *DCI // that it had before
	stream      int
	outstanding int
	pending     int  // requests not yet posted
	unwanted    bool // see [Machine.Abort]
	Attaches    uint64
}

// DCI returns the peer's DCI, or nil if it has none.
func (p *Peer) DCI() *DCI { return p.dci }

// Stream returns the number of the peer's stream in its DCI, from 0.
func (p *Peer) Stream() int { return p.stream }

// Outstanding returns how many requests are under way.
func (p *Peer) Outstanding() int { return p.outstanding }

// Pending returns how many requests wait.
func (p *Peer) Pending() int { return p.pending }

// usable reports whether the place of a peer that has one takes requests.
func (p *Peer) usable() bool { return p.dci.state == ready && !p.dci.streams[p.stream].failed }

// ActionKind is what the driver is asked for.
type ActionKind uint8

const (
	Check       ActionKind = iota // ask for the DCI's state, then call Checked
	ResetStream                   // reset the stream, then call StreamReset
	Abort                         // bring the DCI to error: what is in it completes
	Recover                       // bring it to work again, then call Recovered
	GiveUp                        // fail what waits for the peer
)

// Action is what the driver is asked for.
type Action struct {
	Kind       ActionKind
	DCI        *DCI
	Stream     int
	Peer       *Peer
	Err        error
	recoveries int
}

// Stats count what a machine did.
type Stats struct {
	Attaches, Waits, Failures uint64
}

// ErrLost: no DCI is left that works.
var ErrLost = errors.New("no DCI is left")

// Usable reports whether there is a DCI that works, or may do so again.
func (c *Machine) Usable() bool {
	for i := range c.DCIs {
		if c.DCIs[i].state != lostDCI {
			return true
		}
	}
	return false
}

// Waiting reports whether requests wait for which there is room.
func (c *Machine) Waiting() bool {
	if c.lined == 0 {
		return false
	}
	for i := range c.DCIs {
		if d := &c.DCIs[i]; len(d.waiting) > 0 && d.state == ready && d.room() > 0 {
			return true
		}
	}
	return false
}

// Lost returns the reason why the last DCI could not be brought back.
func (c *Machine) Lost() error { return errors.Join(ErrLost, c.lost) }

// Machine decides which DCI serves which target, and what becomes of DCIs
// in error.
//
// A target without requests belongs to no DCI. Its next request goes to the
// least loaded one, there to the stream with the fewest targets, and all
// others to the same place until the last has completed: that keeps their
// order. Targets that find no room wait in line at their DCI, and take turns
// of at most quota requests.
type Machine struct {
	DCIs    []DCI
	Actions []Action
	Stats   Stats

	quota int
	lined int   // peers that wait for room
	lost  error // why the last DCI could not be brought back
}

// New makes a machine for so many DCIs with streams each.
func New(dcis, streams, depth, quota int) *Machine {
	c := &Machine{quota: quota, DCIs: make([]DCI, dcis)}
	for i := range c.DCIs {
		c.DCIs[i] = DCI{Index: i, streams: make([]stream, streams), ring: make([]request, depth)}
	}
	return c
}

func (c *Machine) do(a Action) {
	if a.DCI != nil {
		a.recoveries = a.DCI.recoveries
	}
	c.Actions = append(c.Actions, a)
}

func (c *Machine) line(p *Peer) {
	p.dci.waiting = append(p.dci.waiting, p)
	p.dci.pending += p.pending
	c.lined++
}

// unline takes a peer out of the line for room, and reports whether it was there.
func (c *Machine) unline(p *Peer) bool {
	d := p.dci
	i := slices.Index(d.waiting, p)
	if i < 0 {
		return false
	}
	d.waiting = slices.Delete(d.waiting, i, i+1)
	c.lined--
	return true
}

// Admit returns how many of n requests of a peer that has a place may be posted at
// once; the caller posts them and calls Posted. The others it keeps and calls
// Enqueue.
func (c *Machine) Admit(p *Peer, n int) int {
	if !p.usable() || len(p.dci.waiting) > 0 {
		return 0
	}
	return min(n, p.dci.room())
}

// Enqueue counts n requests that wait.
func (c *Machine) Enqueue(p *Peer, n int) {
	if p.pending == 0 {
		c.Stats.Waits++
		p.pending = n
		c.line(p)
		return
	}
	p.pending += n
	p.dci.pending += n
}

// Withdraw takes back n requests that wait.
func (c *Machine) Withdraw(p *Peer, n int) {
	p.pending -= n
	p.dci.pending -= n
	if p.pending == 0 {
		c.unline(p)
		c.Settle(p)
	}
}

// Turn returns the next peer that waits for the DCI and how many of its requests
// go there now, or nil. They no longer count as waiting.
func (c *Machine) Turn(d *DCI) (*Peer, int) {
	if d.room() == 0 {
		return nil, 0
	}
	for i, p := range d.waiting {
		if !p.usable() {
			continue
		}
		n := min(p.pending, d.room())
		if len(d.waiting) > 1 {
			n = min(n, c.quota)
		}
		d.waiting = slices.Delete(d.waiting, i, i+1)
		c.lined--
		d.pending -= p.pending
		if p.pending -= n; p.pending > 0 {
			c.line(p)
		}
		return p, n
	}
	return nil, 0
}

// The number of a request in the device: its DCI and its place in the ring.
const placeBits = 32

func (d *DCI) Number(k int) uint64 {
	return uint64(d.Index)<<placeBits | (d.tail+uint64(k))&(1<<placeBits-1)
}

// Posted counts a request that went to the DCI of its peer, in the order of
// their numbers.
func (c *Machine) Posted(p *Peer) {
	d := p.dci
	d.ring[d.tail%uint64(len(d.ring))] = request{peer: p}
	d.tail++
	d.outstanding++
	d.streams[p.stream].outstanding++
	p.outstanding++
}

// Settle takes the place of a peer that has nothing to do after all.
func (c *Machine) Settle(p *Peer) {
	if p.outstanding == 0 && p.pending == 0 && p.dci != nil {
		c.leave(p)
	}
}

// Has reports whether a request of that number was posted and has not completed.
func (c *Machine) Has(number uint64) bool {
	_, r := c.find(number)
	return r != nil
}

// find returns the DCI and the request of a number, or nil.
func (c *Machine) find(number uint64) (*DCI, *request) {
	i := number >> placeBits
	if i >= uint64(len(c.DCIs)) {
		return nil, nil
	}
	d := &c.DCIs[i]
	at := d.head + (number-d.head)&(1<<placeBits-1)
	r := &d.ring[at%uint64(len(d.ring))]
	if at >= d.tail || r.done {
		return nil, nil
	}
	return d, r
}

// Completed takes the end of a request by its number; failed says that the
// stream, or the DCI, is in error. It returns false for a number that means
// nothing.
func (c *Machine) Completed(number uint64, failed bool) (*Peer, bool) {
	d, r := c.find(number)
	if r == nil {
		return nil, false
	}
	r.done = true
	p := r.peer
	for d.head < d.tail && d.ring[d.head%uint64(len(d.ring))].done {
		d.ring[d.head%uint64(len(d.ring))].peer = nil
		d.head++
	}
	s := &d.streams[p.stream]
	d.outstanding--
	s.outstanding--
	p.outstanding--
	if failed {
		c.failed(d, p.stream)
	}
	p.unwanted = p.unwanted && failed && p.outstanding > 0
	switch {
	case d.state == failedDCI:
		c.drained(d)
	case s.failed && s.outstanding == 0:
		s.resetting = true
		c.do(Action{Kind: ResetStream, DCI: d, Stream: p.stream})
	}
	switch {
	case p.outstanding > 0:
	case p.pending == 0:
		c.leave(p)
	case !p.usable():
		c.move(p)
	}
	return p, true
}

// Live returns how many peers have a DCI.
func (c *Machine) Live() int {
	n := 0
	for i := range c.DCIs {
		n += c.DCIs[i].peers
	}
	return n
}
