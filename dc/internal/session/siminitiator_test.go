package session

import (
	"errors"
	"slices"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// job is a request of the random program.
type job struct {
	to       *Peer
	on       *simInitiator
	order    int // of posting, for its target
	executed int
	by       *simTarget
	ended    int
	err      error
	taken    bool // back, while it waited
}

// attach is a call that waits for a session.
type attach struct {
	to   *Peer
	over bool
}

// simQP is the queue pair of an initiator context.
type simQP struct {
	qpn, remote, next uint32
	target            wire.ControlAddress
	owner             *Peer
	session           uint64
	gen               int
	bad, busy         bool
	unready           bool // a request has found no receive
	returning         bool // and has come back
	shared            int  // requests posted while others waited
	jobs              []*job
	returned          []*job // that wait again when all have come back
}

type simPeer struct {
	address  PeerAddress
	queue    []*job
	posted   int
	executed int // order of the last that was carried out
	ended    int // of the last that has ended
}

type simInitiator struct {
	w     *world
	at    wire.ControlAddress
	core  *Initiator
	qps   []simQP
	peers map[*Peer]*simPeer
	known map[wire.ControlAddress]*Peer // by the address that was resolved
	joins []*attach
	timer time.Duration
	dead  bool
	deaf  bool // does not take completions any more
}

func (w *world) initiator(contexts, quota int) *simInitiator {
	i := &simInitiator{w: w, at: wire.ControlAddress{QPN: w.qpn()}, peers: make(map[*Peer]*simPeer), known: make(map[wire.ControlAddress]*Peer), timer: Never}
	i.core = NewInitiator(w.rng.Uint64(), contexts, Limits{Quota: quota, Hold: 5 * time.Millisecond, MaxWait: 20 * time.Millisecond, Retransmit: 2 * time.Millisecond,
		ConnectTimeout: time.Second, Keep: w.rng.IntN(5) > 0, TimeWait: timeWait}, w.rng.Uint32)
	for range contexts {
		i.qps = append(i.qps, simQP{qpn: w.qpn()})
	}
	w.inits = append(w.inits, i)
	return i
}

func (i *simInitiator) resolve(a PeerAddress) *Peer {
	a.Key = simKey
	p := i.core.AddPeer(a)
	i.peers[p] = &simPeer{address: a, executed: -1, ended: -1}
	i.known[a.At] = p
	return p
}

// remove makes the initiator part with a target, and meet it anew.
func (i *simInitiator) remove(at wire.ControlAddress) {
	p := i.known[at]
	if i.dead || !i.core.Remove(p, i.w.Now) {
		return
	}
	if len(i.peers[p].queue) > 0 {
		i.w.Wrong("a peer with requests was removed")
	}
	i.resolve(i.peers[p].address)
	i.settle()
}

func (i *simInitiator) post(p *Peer, j *job) {
	j.order = i.peers[p].posted
	i.peers[p].posted++
	if i.dead {
		j.ended, j.err = j.ended+1, errors.New("dead")
		return
	}
	if x := i.core.Admit(p); x != nil && len(i.qps[x.Index].jobs) < 16 {
		i.transmit(x, j)
	} else {
		i.peers[p].queue = append(i.peers[p].queue, j)
		i.core.Enqueue(p, 1, i.w.Now)
	}
	i.settle()
}

// attach asks for a session, and perhaps does not wait for it.
func (i *simInitiator) attach(p *Peer, timeout time.Duration) {
	if x := p.ctx; i.dead || x != nil && x.Attached() {
		return
	}
	a := &attach{to: p}
	i.joins = append(i.joins, a)
	i.core.Enqueue(p, 0, i.w.Now)
	i.settle()
	i.w.After(timeout, func() {
		if a.over || i.dead {
			return
		}
		a.over = true
		if !slices.ContainsFunc(i.joins, func(a *attach) bool { return a.to == p && !a.over }) {
			i.core.Withdraw(p, 0, true)
			i.settle()
		}
	})
}

// joined ends the calls that wait for a session.
func (i *simInitiator) joined(p *Peer) {
	for _, a := range i.joins {
		a.over = a.over || a.to == p
	}
}

// cancel takes a request back that waits for its target.
func (i *simInitiator) cancel(p *Peer, k int) {
	q := &i.peers[p].queue
	if i.dead || len(*q) == 0 {
		return
	}
	k %= len(*q)
	j := (*q)[k]
	*q = slices.Delete(*q, k, k+1)
	j.ended, j.err, j.taken = j.ended+1, errors.New("canceled"), true
	i.core.Withdraw(p, 1, false)
	i.settle()
}

// transmit is a request on the queue pair, as RC carries it.
func (i *simInitiator) transmit(x *Context, j *job) {
	q := &i.qps[x.Index]
	if q.owner != x.peer || j.to != x.peer || q.session != x.Session.ID {
		i.w.Wrong("request posted to the wrong session")
	}
	if i.core.wanted(x) {
		if q.shared++; q.shared > i.core.Quota {
			i.w.Wrong("%d requests posted while others wait; the quota is %d", q.shared, i.core.Quota)
		}
	}
	q.jobs = append(q.jobs, j)
	i.core.Posted(x, 1, 1)
	gen := q.gen
	if q.bad {
		i.w.After(10*time.Microsecond, func() { i.complete(x, gen, false) })
		return
	}
	psn := q.next
	q.next = (q.next + 1) & 0xffffff
	i.w.After(30*time.Microsecond, func() { i.arrive(x, gen, psn, j) })
}

func (i *simInitiator) arrive(x *Context, gen int, psn uint32, j *job) {
	q := &i.qps[x.Index]
	if q.gen != gen || q.bad || q.unready {
		return
	}
	if t := i.w.targetAt(q.target.QPN); t != nil {
		for k := range t.slots {
			s := &t.slots[k]
			if s.qpn != q.remote || s.session == 0 {
				continue
			}
			if s.peer != q.qpn || s.psn != psn || s.session != q.session {
				i.w.Wrong("packet %x of session %x met session %x, which expects %x", psn, q.session, s.session, s.psn)
			}
			if i.w.unready > 0 && i.w.rng.Float64() < i.w.unready {
				q.unready = true // it takes nothing behind this, either
				i.w.After(5*time.Millisecond, func() {
					q.returning = q.returning || q.gen == gen && !q.bad // what is broken off before is lost
					i.complete(x, gen, false)
				})
				return
			}
			s.psn = (s.psn + 1) & 0xffffff
			j.executed++
			j.by = t
			if p := i.peers[j.to]; j.order <= p.executed {
				i.w.Wrong("request %d of a target was carried out after %d", j.order, p.executed)
			} else {
				p.executed = j.order
			}
			i.doubled(x, q.remote, psn)
			i.w.After(30*time.Microsecond, func() { i.complete(x, gen, true) })
			return
		}
	}
	i.w.After(100*time.Millisecond, func() { i.complete(x, gen, false) })
}

// complete takes the next completion of a queue pair; after a failure the rest
// is flushed.
func (i *simInitiator) complete(x *Context, gen int, ok bool) {
	q := &i.qps[x.Index]
	if i.dead || i.deaf || q.gen != gen || len(q.jobs) == 0 {
		return
	}
	j := q.jobs[0]
	q.jobs = q.jobs[1:]
	ok = ok && !q.bad
	if !ok {
		i.flush(x)
	}
	if !ok && q.returning {
		q.returned = append(q.returned, j)
		if len(q.jobs) == 0 {
			p := i.peers[j.to]
			p.queue = append(q.returned, p.queue...)
			q.returned = nil
			i.w.returned++
		}
		i.core.NotReady(x, 1, i.w.Now)
		i.settle()
		return
	}
	i.end(j, ok, errors.New("session lost"))
	i.core.Completed(x, 1, !ok, i.w.Now)
	i.settle()
}

func (i *simInitiator) end(j *job, ok bool, err error) {
	j.ended++
	if !ok {
		j.err = err
	}
	if p := i.peers[j.to]; j.order <= p.ended {
		i.w.Wrong("request %d of a target has ended after %d", j.order, p.ended)
	} else {
		p.ended = j.order
	}
}

func (i *simInitiator) flush(x *Context) {
	q := &i.qps[x.Index]
	if q.bad {
		return
	}
	q.bad = true
	gen := q.gen
	for range q.jobs {
		i.w.After(10*time.Microsecond, func() { i.complete(x, gen, false) })
	}
}

func (i *simInitiator) settle() {
	for len(i.core.Actions) > 0 && !i.dead {
		a := i.core.Actions[0]
		i.core.Actions = i.core.Actions[1:]
		i.act(a)
	}
	// What a context did not take when its turn came waits for its completions.
	for k := range i.core.Contexts {
		if x := &i.core.Contexts[k]; x.Attached() {
			i.drain(x)
		}
	}
	i.check()
	if i.dead {
		return
	}
	if !i.core.Retime {
		if next := i.core.soonest(); next < i.core.told {
			i.w.Wrong("something is due at %v, and Next has said %v", next, i.core.told)
		}
		return
	}
	i.core.Retime = false
	next := i.core.Next()
	if next >= i.timer {
		return
	}
	at := max(next, i.w.Now)
	i.timer = at
	i.w.After(at-i.w.Now, func() {
		if i.timer != at || i.dead {
			return
		}
		i.timer = Never
		i.core.Tick(i.w.Now)
		if i.core.Next() <= i.w.Now {
			i.core.Tick(i.w.Now) // what the first one did has let others wait
		}
		i.settle()
		if next := i.core.Next(); next <= i.w.Now && !i.dead {
			i.w.Wrong("initiator wants a tick for %v at %v, again", next, i.w.Now)
		}
	})
}

// check is what must hold whenever the machine has been told something.
func (i *simInitiator) check() {
	c := i.core
	waiting := 0
	for _, p := range c.peers {
		if p == nil {
			continue
		}
		wait := len(i.peers[p].queue)
		if x := p.ctx; x != nil {
			wait += len(i.qps[x.Index].returned)
		}
		if int(p.pending) != wait {
			i.w.Wrong("%d requests wait, the machine knows of %d", wait, p.pending)
		}
		if !i.dead && p.wanted != slices.ContainsFunc(i.joins, func(a *attach) bool { return a.to == p && !a.over }) {
			i.w.Wrong("a session is wanted: %v, and somebody waits for it: %v", p.wanted, !p.wanted)
		}
		if p.rest == inLine {
			waiting++
		}
		if p.pending > 0 && p.rest == nowhere && p.ctx == nil && !i.dead {
			i.w.Wrong("a target with %d requests waits for nothing", p.pending)
		}
		if p.ctx != nil && p.rest != nowhere || p.ctx != nil && p.ctx.peer != p {
			i.w.Wrong("a target has a context and waits for one")
		}
	}
	if waiting != c.waiting {
		i.w.Wrong("%d targets in line, counted are %d", waiting, c.waiting)
	}
	resets := 0
	for k := range c.Contexts {
		if c.Contexts[k].state == resetting {
			resets++
		}
	}
	for k := range c.Contexts {
		x := &c.Contexts[k]
		if x.empty() && (!x.line.empty() || c.general.n > resets) && !i.dead {
			i.w.Wrong("context %d is empty in state %d, and somebody waits for it", k, x.state)
		}
	}
}

func (i *simInitiator) drain(x *Context) {
	p := x.peer
	for {
		n := i.core.Room(x, 16-len(i.qps[x.Index].jobs))
		if n == 0 {
			return
		}
		i.core.Took(p, 1)
		j := i.peers[p].queue[0]
		i.peers[p].queue = i.peers[p].queue[1:]
		i.transmit(x, j)
	}
}

func (i *simInitiator) act(a Action) {
	w := i.w
	switch a.Kind {
	case ActSend:
		m := a.Message
		m.From = i.at
		if m.Kind == wire.Connect {
			m.QPN = i.qps[m.Context].qpn
		}
		w.carry(a.To, m)
	case ActJoin:
		x := a.Context
		q := &i.qps[x.Index]
		if len(q.jobs) != 0 || q.busy {
			w.Wrong("context connected while it is in use")
		}
		q.gen++
		q.busy = true
		resumed := a.Message.Kind == 0
		w.After(400*time.Microsecond, func() {
			q.remote, q.next, q.target, q.owner, q.session, q.bad, q.busy = a.Message.QPN, x.Session.PSN, a.Message.From, a.Peer, x.Session.ID, false, false
			q.unready, q.returning = false, false
			q.shared = 0
			if resumed {
				w.resumed++
			}
			var err error
			if w.fails() {
				err = errFault
			}
			if !i.dead {
				i.core.Joined(x, err, w.Now)
				i.settle()
			}
		})
	case ActReset:
		x := a.Context
		q := &i.qps[x.Index]
		if len(q.jobs) != 0 {
			w.Wrong("context reset with %d requests in it", len(q.jobs))
		}
		if q.busy {
			w.Wrong("context reset while it is being connected")
		}
		q.gen++
		q.busy = true
		w.After(time.Duration(w.rng.Int64N(int64(time.Millisecond))), func() {
			q.busy = false
			var err error
			if w.fails() {
				err = errFault
			}
			if a.Again {
				q.qpn = w.qpn()
			}
			if !i.dead {
				i.core.ResetDone(x, err, w.Now)
				i.settle()
			}
		})
	case ActAbort:
		i.flush(a.Context)
	case ActReady:
		i.joined(a.Peer)
		i.qps[a.Context.Index].shared = 0
		i.drain(a.Context)
	case ActFail:
		i.joined(a.Peer)
		p := i.peers[a.Peer]
		failed := p.queue
		p.queue = nil
		for _, j := range failed {
			i.end(j, false, a.Err)
		}
	case ActLookup:
		i.lookUp(a.Peer)
	}
}

// doubled makes copies of a packet and of its acknowledgement that come late,
// when the queue pairs may serve other sessions. Both are known to a device by
// no more than the number of the queue pair they go to and their own.
func (i *simInitiator) doubled(x *Context, remote, psn uint32) {
	w, q := i.w, &i.qps[x.Index]
	if w.rng.Float64() >= w.dup {
		return
	}
	session, host := q.session, q.owner.at.GID
	delay := func() time.Duration { return time.Duration(w.rng.Int64N(int64(w.spread) + 1)) }
	w.After(delay(), func() {
		for _, t := range w.targets {
			for _, s := range t.slots {
				if s.qpn == remote && s.session != 0 && s.session != session && s.psn == psn {
					w.Wrong("a late packet of session %x is carried out under session %x", session, s.session)
				}
			}
		}
	})
	w.After(delay(), func() {
		// As Soft-RoCE sees it, which takes it from the host that it is connected
		// to.
		first := q.next - uint32(len(q.jobs))
		if q.session != session && q.owner.at.GID == host && !q.bad && !q.busy && len(q.jobs) > 0 && int32((psn-first)<<8) >= 0 {
			w.Wrong("a late acknowledgement of session %x completes requests of session %x", session, q.session)
		}
	})
}

// lookUp is the question to a service: the reply may fail, be late, and be out
// of date when it comes.
func (i *simInitiator) lookUp(p *Peer) {
	w := i.w
	delay := func() time.Duration { return time.Duration(w.rng.Int64N(int64(20 * time.Millisecond))) }
	service := uint16(i.peers[p].address.At.QPN)
	w.After(delay(), func() {
		var at wire.ControlAddress
		var err error
		t := w.services[service]
		if t == nil || w.rng.Float64() < w.loss {
			err = errors.New("no reply")
		} else {
			at.QPN = t.at.QPN
		}
		w.After(delay(), func() {
			if i.dead {
				return
			}
			before := p.at.QPN
			i.core.Found(p, at, err, w.Now)
			if p.at.QPN != before {
				w.found++
			}
			i.settle()
		})
	})
}
