package dc

import "slices"

// dciState is how far a DCI is with its errors.
type dciState uint8

const (
	dciReady      dciState = iota
	dciFailed              // in error; waits until everything in it has completed
	dciRecovering          // on its way through RESET
	dciLost                // could not be brought back
)

// dciRequest is a request in a DCI.
type dciRequest struct {
	peer *dciPeer
	id   uint64 // the caller's
	op   Op
	done bool
}

// dciStream is requests that are carried out in order. A DCI without streams
// is taken for one.
type dciStream struct {
	peers       int // that it serves
	outstanding int
	failed      bool // takes no more requests until it has been reset
	resetting   bool
}

// dci is an initiator context of the hardware.
//
// Requests of different streams complete in any order, but the send queue is a
// ring: the place of a request is free only when all before it have completed.
// So what bounds a post is not how many requests are outstanding, but how far
// the oldest one is behind.
type dci struct {
	index       int
	state       dciState
	streams     []dciStream
	peers       int
	outstanding int
	pending     int // requests of the peers that wait
	ring        []dciRequest
	head, tail  uint64     // of the ring; they only grow
	waiting     []*dciPeer // for room, in order
	recoveries  int        // a state asked for before the last one means nothing
}

func (d *dci) room() int { return len(d.ring) - int(d.tail-d.head) }

// load is what a request posted now would stand behind.
func (d *dci) load() int { return d.outstanding + d.pending }

// dciPeer is what the initiator knows of a DCT. It keeps its DCI and stream as
// long as it has requests there.
type dciPeer struct {
	owner       *Peer
	dci         *dci
	stream      int
	outstanding int
	pending     int // requests not yet posted
}

func (p *dciPeer) usable() bool {
	return p.dci != nil && p.dci.state == dciReady && !p.dci.streams[p.stream].failed
}

type dciActionKind uint8

const (
	dciCheck       dciActionKind = iota // ask for the DCI's state, then call checked
	dciResetStream                      // reset the stream, then call streamReset
	dciAbort                            // bring the DCI to error: what is in it completes
	dciRecover                          // bring it to work again, then call recovered
	dciGiveUp                           // fail what waits for the peer
)

type dciAction struct {
	kind       dciActionKind
	dci        *dci
	stream     int
	recoveries int
	peer       *dciPeer
	err        error
}

// hardwareCore decides which DCI serves which target, and what becomes of DCIs
// in error. Like [initiatorCore] it does no I/O; it needs no time either.
//
// A target without requests belongs to no DCI. Its next request goes to the
// least loaded one, there to the stream with the fewest targets, and all
// others to the same place until the last has completed: that keeps their
// order. Targets that find no room wait in line at their DCI, and take turns
// of at most quota requests.
type hardwareCore struct {
	quota   int
	dcis    []dci
	actions []dciAction
	lost    error // why the last DCI could not be brought back
	stats   Stats
}

func newHardwareCore(dcis, streams, depth, quota int) *hardwareCore {
	c := &hardwareCore{quota: quota, dcis: make([]dci, dcis)}
	for i := range c.dcis {
		c.dcis[i] = dci{index: i, streams: make([]dciStream, streams), ring: make([]dciRequest, depth)}
	}
	return c
}

func (c *hardwareCore) do(a dciAction) {
	if a.dci != nil {
		a.recoveries = a.dci.recoveries
	}
	c.actions = append(c.actions, a)
}

// place gives a peer a DCI and a stream if it has none. It answers false if no
// DCI is left.
func (c *hardwareCore) place(p *dciPeer) bool {
	if p.dci != nil {
		return true
	}
	var best *dci
	for i := range c.dcis {
		d := &c.dcis[i]
		if d.state != dciLost && (best == nil || c.better(d, best)) {
			best = d
		}
	}
	if best == nil {
		return false
	}
	p.dci, p.stream = best, 0
	for s := range best.streams {
		at, than := &best.streams[s], &best.streams[p.stream]
		if at.failed != than.failed && than.failed || at.failed == than.failed && at.peers < than.peers {
			p.stream = s
		}
	}
	best.peers++
	best.streams[p.stream].peers++
	c.stats.Attaches++
	return true
}

// better prefers DCIs that work, then those with little to do, then those with
// few peers.
func (c *hardwareCore) better(d, than *dci) bool {
	switch {
	case (d.state == dciReady) != (than.state == dciReady):
		return d.state == dciReady
	case d.load() != than.load():
		return d.load() < than.load()
	}
	return d.peers < than.peers
}

// leave parts a peer and its DCI.
func (c *hardwareCore) leave(p *dciPeer) {
	d := p.dci
	if i := slices.Index(d.waiting, p); i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
		d.pending -= p.pending
	}
	d.peers--
	d.streams[p.stream].peers--
	p.dci = nil
}

// move finds another place for a peer whose own is out of order and has none of
// its requests any more.
func (c *hardwareCore) move(p *dciPeer) {
	c.leave(p)
	if c.place(p) {
		c.line(p)
		return
	}
	p.pending = 0
	c.do(dciAction{kind: dciGiveUp, peer: p, err: c.lost})
}

func (c *hardwareCore) line(p *dciPeer) {
	p.dci.waiting = append(p.dci.waiting, p)
	p.dci.pending += p.pending
}

// admit tells how many of n requests of a peer that has a place may be posted at
// once; the caller posts them and calls posted. The others it keeps and calls
// enqueue.
func (c *hardwareCore) admit(p *dciPeer, n int) int {
	if !p.usable() || len(p.dci.waiting) > 0 {
		return 0
	}
	return min(n, p.dci.room())
}

// enqueue counts n requests that wait.
func (c *hardwareCore) enqueue(p *dciPeer, n int) {
	if p.pending == 0 {
		c.stats.Waits++
		p.pending = n
		c.line(p)
		return
	}
	p.pending += n
	p.dci.pending += n
}

// turn answers the next peer that waits for the DCI and how many of its requests
// go there now, or nil. They no longer count as waiting.
func (c *hardwareCore) turn(d *dci) (*dciPeer, int) {
	if d.state != dciReady || d.room() == 0 {
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
		d.pending -= p.pending
		if p.pending -= n; p.pending > 0 {
			c.line(p)
		}
		return p, n
	}
	return nil, 0
}

// The number of a request in the device: its DCI and its place in the ring.
const placeBits = 48

func (d *dci) number(k int) uint64 {
	return uint64(d.index)<<placeBits | (d.tail+uint64(k))&(1<<placeBits-1)
}

// posted counts a request that went to the DCI of its peer, in the order of
// their numbers.
func (c *hardwareCore) posted(p *dciPeer, id uint64, op Op) {
	d := p.dci
	d.ring[d.tail%uint64(len(d.ring))] = dciRequest{peer: p, id: id, op: op}
	d.tail++
	d.outstanding++
	d.streams[p.stream].outstanding++
	p.outstanding++
}

// settle takes the place of a peer that has nothing to do after all.
func (c *hardwareCore) settle(p *dciPeer) {
	if p.outstanding == 0 && p.pending == 0 && p.dci != nil {
		c.leave(p)
	}
}

// completed takes the end of a request by its number; failed tells that the
// stream, or the DCI, is in error. It answers false for a number that means
// nothing.
func (c *hardwareCore) completed(number uint64, failed bool) (dciRequest, *dci, bool) {
	i, at := number>>placeBits, number&(1<<placeBits-1)
	if i >= uint64(len(c.dcis)) {
		return dciRequest{}, nil, false
	}
	d := &c.dcis[i]
	r := &d.ring[at%uint64(len(d.ring))]
	if at < d.head || at >= d.tail || r.done {
		return dciRequest{}, nil, false
	}
	r.done = true
	ended := *r
	for d.head < d.tail && d.ring[d.head%uint64(len(d.ring))].done {
		d.ring[d.head%uint64(len(d.ring))].peer = nil
		d.head++
	}
	p := ended.peer
	s := &d.streams[p.stream]
	d.outstanding--
	s.outstanding--
	p.outstanding--
	if failed {
		c.failed(d, p.stream)
	}
	switch {
	case d.state == dciFailed:
		c.drained(d)
	case d.state == dciReady && s.failed && !s.resetting && s.outstanding == 0:
		s.resetting = true
		c.do(dciAction{kind: dciResetStream, dci: d, stream: p.stream})
	}
	switch {
	case p.outstanding > 0:
	case p.pending == 0:
		c.leave(p)
	case !p.usable():
		c.move(p)
	}
	return ended, d, true
}

// failed: a request of the stream failed. Without streams that is the whole
// DCI; with them the device has to be asked, as it gives up a DCI when too many
// of its streams are in error.
func (c *hardwareCore) failed(d *dci, stream int) {
	switch s := &d.streams[stream]; {
	case d.state != dciReady || s.failed:
	case len(d.streams) == 1:
		c.breakDown(d)
	default:
		s.failed = true
		c.stats.Failures++
		c.do(dciAction{kind: dciCheck, dci: d})
	}
}

// checked is the answer to dciCheck.
func (c *hardwareCore) checked(a dciAction, dead bool) {
	if d := a.dci; dead && d.state == dciReady && a.recoveries == d.recoveries {
		c.breakDown(d)
	}
}

// breakDown: the whole DCI is in error.
func (c *hardwareCore) breakDown(d *dci) {
	d.state = dciFailed
	c.stats.Failures++
	c.do(dciAction{kind: dciAbort, dci: d})
	c.evacuate(d)
	c.drained(d)
}

// evacuate moves the peers that have no requests in a DCI out of order, if there
// is another one for them.
func (c *hardwareCore) evacuate(d *dci) {
	for _, p := range slices.Clone(d.waiting) {
		if p.outstanding == 0 {
			c.move(p)
		}
	}
}

// drained begins the recovery of a DCI once nothing is in it, and no reset of a
// stream under way that would meet the next requests.
func (c *hardwareCore) drained(d *dci) {
	resetting := slices.ContainsFunc(d.streams, func(s dciStream) bool { return s.resetting })
	if d.state == dciFailed && d.outstanding == 0 && !resetting {
		d.state = dciRecovering
		c.do(dciAction{kind: dciRecover, dci: d})
	}
}

// streamReset is the answer to dciResetStream.
func (c *hardwareCore) streamReset(a dciAction, err error) {
	d, s := a.dci, &a.dci.streams[a.stream]
	s.resetting = false
	switch {
	case d.state != dciReady:
		c.drained(d) // it broke down meanwhile
	case err != nil:
		c.breakDown(d)
	default:
		s.failed = false
	}
}

// recovered is the answer to dciRecover.
func (c *hardwareCore) recovered(d *dci, err error) {
	d.recoveries++
	for s := range d.streams {
		d.streams[s].failed = false
	}
	if err == nil {
		d.state = dciReady
		return
	}
	d.state, c.lost = dciLost, err
	c.evacuate(d)
}

// live is how many peers have a DCI.
func (c *hardwareCore) live() int {
	n := 0
	for i := range c.dcis {
		n += c.dcis[i].peers
	}
	return n
}
