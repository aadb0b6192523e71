package dc

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Post gives requests to a target, in order, and returns the number taken.
// Each of those has exactly one completion, or none if it is [Request.Quiet] and
// succeeds. If the target is attached they are posted at once, in one crossing
// into C and without allocating; if not, they are kept until it is. A request
// that cannot be right is refused, and with it all of the call.
func (i *Initiator) Post(p *Peer, rs ...Request) (int, error) {
	i.mu.Lock()
	n, _, _, err := i.give(p, rs, nil, -1)
	i.unlock()
	return n, err
}

// give posts or keeps requests, and returns the number taken. looked reports whether it has
// looked for completions, as look says; then found must be dispatched without the lock. mu
// must be held, and may be released for a while.
func (i *Initiator) give(p *Peer, rs []Request, c *call, look int) (n int, looked bool, found verbs.Polled, err error) {
	if err := i.mine(p); err != nil {
		return 0, false, found, opError("post to", p.name(), err)
	}
	for k := range rs {
		if err := rs[k].check(&i.cfg); err != nil {
			return 0, false, found, opError("post to", p.addr.String(), err)
		}
	}
	p.active()
	if len(rs) == 0 {
		return 0, false, found, nil
	}
	at, err := i.be.place(p, len(rs))
	if at.room > 0 {
		for k := range rs[:at.room] {
			i.fill(at.ring.at(at.first+uint32(k)), p, &rs[k], c)
		}
		n, looked, found, err = i.be.transmit(at, look)
		if n == len(rs) {
			return n, looked, found, nil
		}
		p.a.posted -= uint64(at.room - n)
	}
	if err != nil {
		return n, looked, found, opError("post to", p.addr.String(), err)
	}
	kept := min(len(rs)-n, max(i.cfg.MaxPending-len(p.a.queue), 0)) // more may wait, if some came back
	i.keep(p, rs[n:n+kept], c)
	if n += kept; n < len(rs) {
		p.a.full = true
		err = opError("post to", p.addr.String(), fmt.Errorf("%w: %d requests wait", ErrQueueFull, i.cfg.MaxPending))
	}
	return n, looked, found, err
}

// keep lets requests wait for their target.
func (i *Initiator) keep(p *Peer, rs []Request, c *call) {
	a := p.a
	for k := range rs {
		a.queue = append(a.queue, entry{})
		e := &a.queue[len(a.queue)-1]
		i.fill(e, p, &rs[k], c)
		i.limit(p, e)
	}
	if len(rs) > 0 {
		i.outside++
		i.be.enqueue(p, len(rs))
		i.outside--
	}
}

// returned lets requests wait again that the device had: they come before all others,
// and a goroutine that waits for one checks whether it still wants to.
func (i *Initiator) returned(p *Peer, es []entry) {
	p.a.queue = append(es, p.a.queue...)
	for k := range p.a.queue[:len(es)] {
		e := &p.a.queue[k]
		i.limit(p, e)
		if e.call != nil {
			e.call.waiter.Wake()
			i.woken = i.woken || i.outside > 0
		}
	}
}

// limit has a request that begins to wait end in time. Most requests are posted at once, without a look at the clock.
func (i *Initiator) limit(p *Peer, e *entry) {
	if e.Timeout <= 0 {
		return
	}
	if e.deadline == 0 {
		e.deadline = max(i.now()+e.Timeout, 0) // one that does not fit is none
	}
	if e.deadline != 0 {
		i.time(p, e.deadline)
	}
}

// take removes the first requests that wait.
func (i *Initiator) take(p *Peer, n int) {
	a := p.a
	k := copy(a.queue, a.queue[n:])
	clear(a.queue[k:])
	a.queue = a.queue[:k]
	i.roomAgain(p)
}

func (i *Initiator) roomAgain(p *Peer) {
	if a := p.a; a.full && len(a.queue) <= i.cfg.MaxPending/2 {
		a.full = false
		i.event(Event{Kind: EventRoom, Peer: p})
	}
}

// failQueue ends all requests that wait for a target.
func (i *Initiator) failQueue(p *Peer, err error) {
	if p.a == nil {
		return
	}
	queue := p.a.queue
	p.a.queue = nil
	for k := range queue {
		i.finish(&queue[k], err)
	}
	i.roomAgain(p)
}
