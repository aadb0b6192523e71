package dci

import "slices"

// failed: a request of the stream failed. Without streams that is the whole
// DCI; with them the device has to be asked, as it gives up a DCI when too many
// of its streams are in error.
func (c *Machine) failed(d *DCI, stream int) {
	switch s := &d.streams[stream]; {
	case d.state != ready || s.failed:
	case len(d.streams) == 1:
		c.breakDown(d)
	default:
		s.failed = true
		c.Stats.Failures++
		c.do(Action{Kind: Check, DCI: d})
	}
}

// Checked takes the result of Check.
func (c *Machine) Checked(a Action, dead bool) {
	if d := a.DCI; dead && d.state == ready && a.recoveries == d.recoveries {
		c.breakDown(d)
	}
}

// Abort says that no caller waits for the requests of a peer any more. The DCI is taken
// down if all its requests are of such peers. A success of the peer ends that.
func (c *Machine) Abort(p *Peer) {
	d := p.dci
	if d == nil || d.state != ready || p.outstanding == 0 {
		return
	}
	p.unwanted = true
	for at := d.head; at < d.tail; at++ {
		if r := &d.ring[at%uint64(len(d.ring))]; !r.done && !r.peer.unwanted {
			return
		}
	}
	c.breakDown(d)
}

// breakDown: the whole DCI is in error.
func (c *Machine) breakDown(d *DCI) {
	d.state = failedDCI
	c.Stats.Failures++
	c.do(Action{Kind: Abort, DCI: d})
	c.evacuate(d)
	c.drained(d)
}

// evacuate moves the peers that have no requests in a DCI out of order, if there
// is another one for them.
func (c *Machine) evacuate(d *DCI) {
	for _, p := range slices.Clone(d.waiting) {
		if p.outstanding == 0 {
			c.move(p)
		}
	}
}

// drained begins the recovery of a DCI in error once nothing is in it, and no reset of a
// stream under way that would meet the next requests.
func (c *Machine) drained(d *DCI) {
	resetting := slices.ContainsFunc(d.streams, func(s stream) bool { return s.resetting })
	if d.outstanding == 0 && !resetting {
		d.state = recovering
		c.do(Action{Kind: Recover, DCI: d})
	}
}

// StreamReset takes the result of ResetStream.
func (c *Machine) StreamReset(a Action, err error) {
	d, s := a.DCI, &a.DCI.streams[a.Stream]
	s.resetting = false
	switch {
	case d.state != ready:
		c.drained(d) // it broke down meanwhile
	case err != nil:
		c.breakDown(d)
	default:
		s.failed = false
	}
}

// Recovered takes the result of Recover.
func (c *Machine) Recovered(d *DCI, err error) {
	d.recoveries++
	for s := range d.streams {
		d.streams[s].failed = false
	}
	if err == nil {
		d.state = ready
		return
	}
	d.state, c.lost = lostDCI, err
	c.evacuate(d)
}
