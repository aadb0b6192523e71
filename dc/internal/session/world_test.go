package session

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// world is a network in virtual time. Control messages are lost, doubled and
// overtake each other; queue pairs are as reliable as RC. Whatever is walked here
// is walked in order, so that a seed repeats exactly.
type world struct {
	now       time.Duration
	events    events
	seq       int
	rng       *rand.Rand
	loss, dup float64
	spread    time.Duration // of the delay of control messages
	faults    float64       // how often a modification of a queue pair fails
	lease     time.Duration
	targets   []*simTarget // those that live
	services  map[uint16]*simTarget
	inits     []*simInitiator
	lastQPN   uint32
	sessions  map[uint64]bool // every id that was ever given out
	resumed   int             // sessions taken up again
	found     int             // targets found at another place
	err       error
	trace     uint64 // of all events, to compare runs
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (w *world) after(d time.Duration, f func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + d, w.seq, f})
}

func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until && w.err == nil {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.trace = w.trace*1099511628211 ^ uint64(e.at) ^ uint64(e.seq)<<32
		e.do()
	}
	w.now = max(w.now, until)
}

func (w *world) wrong(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *world) qpn() uint32 { w.lastQPN++; return w.lastQPN }

func (w *world) fails() bool { return w.faults > 0 && w.rng.Float64() < w.faults }

var errFault = errors.New("the modification failed")

func (w *world) targetAt(qpn uint32) *simTarget {
	for _, t := range w.targets {
		if t.at.QPN == qpn {
			return t
		}
	}
	return nil
}

// carry takes a control message through the codec and the network.
func (w *world) carry(to wire.ControlAddress, m wire.Message) {
	m.MTU = 3
	var b [wire.MessageLen]byte
	m.Encode(b[:])
	copies := 1
	if w.rng.Float64() < w.loss {
		copies = 0
	} else if w.rng.Float64() < w.dup {
		copies = 1 + w.rng.IntN(3)
	}
	for range copies {
		w.after(50*time.Microsecond+time.Duration(w.rng.Int64N(int64(w.spread)+1)), func() {
			var got wire.Message
			if !got.Decode(b[:]) {
				w.wrong("message does not survive its encoding")
			}
			if t := w.targetAt(to.QPN); t != nil {
				t.core.Received(&got, w.now)
				t.settle()
				return
			}
			for _, i := range w.inits {
				if i.at.QPN == to.QPN && !i.dead {
					i.core.Received(&got, w.now)
					i.settle()
				}
			}
		})
	}
}

type simSlot struct {
	qpn, peer, psn uint32
	session        uint64
	renewed        bool
}

type simTarget struct {
	w     *world
	at    wire.ControlAddress
	home  wire.ControlAddress // of the first one with its address
	core  *Target
	slots []simSlot
	timer time.Duration

	releasing []int
}

const simKey = 42

func (w *world) target(at, home wire.ControlAddress, slots int) *simTarget {
	t := &simTarget{w: w, at: at, home: home, timer: Never}
	for range slots {
		t.slots = append(t.slots, simSlot{qpn: w.qpn()})
	}
	t.core = NewTarget(w.rng.Uint64()|1, simKey, slots, TargetLimits{Lease: w.lease, Retry: 10 * time.Millisecond, Recall: simRecall}, t, func() uint64 {
		id := w.rng.Uint64()
		if w.sessions[id] {
			w.wrong("session id twice")
		}
		w.sessions[id] = true
		return id
	})
	w.targets = append(w.targets, t)
	return t
}

const simRecall = 150 * time.Millisecond

func (t *simTarget) Attach(slot int, session uint64, m *wire.Message) (uint32, error) {
	s := &t.slots[slot]
	if s.session != 0 {
		t.w.wrong("responder context given out twice")
	}
	if t.w.fails() {
		return 0, errFault
	}
	s.peer, s.psn, s.session, s.renewed = m.QPN, m.PSN, session, m.Kind == wire.Renew
	return s.qpn, nil
}

func (t *simTarget) Release(slot int, session uint64, clean bool) {
	s := &t.slots[slot]
	if s.session != session {
		t.w.wrong("another session released")
	}
	if clean {
		for _, i := range t.w.inits {
			for k := range i.qps {
				if q := &i.qps[k]; q.session == session && !q.busy && !q.bad && len(q.jobs) > 0 {
					t.w.wrong("the number of a responder context is kept whose initiator still sends to it")
				}
			}
		}
	}
	*s = simSlot{qpn: s.qpn}
	if !clean {
		s.qpn = t.w.qpn()
	}
	t.releasing = append(t.releasing, slot)
	t.w.after(300*time.Microsecond, func() {
		t.ready(slot)
		t.settle()
	})
}

func (t *simTarget) Prepare() {
	for len(t.releasing) > 0 {
		t.ready(t.releasing[0])
	}
}

func (t *simTarget) Repair(slot int) {
	t.slots[slot].qpn = t.w.qpn()
	t.releasing = append(t.releasing, slot)
	t.w.after(time.Millisecond, func() {
		t.ready(slot)
		t.settle()
	})
}

func (t *simTarget) ready(slot int) {
	if k := slices.Index(t.releasing, slot); k >= 0 && t.lives() {
		t.releasing = slices.Delete(t.releasing, k, k+1)
		var err error
		if t.w.fails() {
			err = errFault
		}
		t.core.Ready(slot, err, t.w.now)
	}
}

func (t *simTarget) lives() bool { return t.w.targetAt(t.at.QPN) == t }

func (t *simTarget) Send(to wire.ControlAddress, m *wire.Message) {
	out := *m
	out.From = t.at
	t.w.carry(to, out)
}

func (t *simTarget) settle() {
	next := t.core.Next()
	if next >= t.timer || !t.lives() {
		return
	}
	at := max(next, t.w.now)
	t.timer = at
	t.w.after(at-t.w.now, func() {
		if t.timer != at || !t.lives() {
			return
		}
		t.timer = Never
		t.core.Tick(t.w.now)
		if next := t.core.Next(); next <= t.w.now {
			t.w.wrong("target wants a tick for %v at %v, again", next, t.w.now)
		}
		t.settle()
	})
}

// job is a request of the random program.
type job struct {
	to       *Peer
	on       *simInitiator
	order    int // of posting, for its target
	executed int
	by       *simTarget
	ended    int
	err      error
}

// simQP is the queue pair of an initiator context.
type simQP struct {
	qpn, remote, next uint32
	target            wire.ControlAddress
	owner             *Peer
	session           uint64
	gen               int
	bad, busy         bool
	shared            int // requests posted while others waited
	jobs              []*job
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
	timer time.Duration
	dead  bool
	deaf  bool // does not take completions any more
}

func (w *world) initiator(contexts, quota int) *simInitiator {
	i := &simInitiator{w: w, at: wire.ControlAddress{QPN: w.qpn()}, peers: make(map[*Peer]*simPeer), known: make(map[wire.ControlAddress]*Peer), timer: Never}
	keep := []Keeping{CloseSessions, Renew, Renew, Park, Park}[w.rng.IntN(5)]
	i.core = NewInitiator(w.rng.Uint64(), contexts, Limits{Quota: quota, Hold: 5 * time.Millisecond, MaxWait: 20 * time.Millisecond, Retransmit: 2 * time.Millisecond,
		ConnectTimeout: time.Second, Keeping: keep}, w.rng.Uint32)
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
	if i.dead || !i.core.Remove(p, i.w.now) {
		return
	}
	if len(i.peers[p].queue) > 0 {
		i.w.wrong("a peer with requests was removed")
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
		i.core.Enqueue(p, 1, i.w.now)
	}
	i.settle()
}

// transmit is a request on the queue pair, as RC carries it.
func (i *simInitiator) transmit(x *Context, j *job) {
	q := &i.qps[x.Index]
	if q.owner != x.peer || j.to != x.peer || q.session != x.Session.ID {
		i.w.wrong("request posted to the wrong session")
	}
	if i.core.wanted(x) {
		if q.shared++; q.shared > i.core.Quota {
			i.w.wrong("%d requests posted while others wait; the quota is %d", q.shared, i.core.Quota)
		}
	}
	q.jobs = append(q.jobs, j)
	i.core.Posted(x, 1, 1)
	gen := q.gen
	if q.bad {
		i.w.after(10*time.Microsecond, func() { i.complete(x, gen, false) })
		return
	}
	psn := q.next
	q.next = (q.next + 1) & 0xffffff
	i.w.after(30*time.Microsecond, func() { i.arrive(x, gen, psn, j) })
}

func (i *simInitiator) arrive(x *Context, gen int, psn uint32, j *job) {
	q := &i.qps[x.Index]
	if q.gen != gen || q.bad {
		return
	}
	if t := i.w.targetAt(q.target.QPN); t != nil {
		for k := range t.slots {
			s := &t.slots[k]
			if s.qpn != q.remote || s.session == 0 {
				continue
			}
			if s.peer != q.qpn || s.psn != psn || s.session != q.session {
				i.w.wrong("packet %x of session %x met session %x, which expects %x", psn, q.session, s.session, s.psn)
			}
			s.psn = (s.psn + 1) & 0xffffff
			j.executed++
			j.by = t
			if p := i.peers[j.to]; j.order <= p.executed {
				i.w.wrong("request %d of a target was carried out after %d", j.order, p.executed)
			} else {
				p.executed = j.order
			}
			i.doubled(x, q.remote, psn)
			i.w.after(30*time.Microsecond, func() { i.complete(x, gen, true) })
			return
		}
	}
	i.w.after(100*time.Millisecond, func() { i.complete(x, gen, false) })
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
	i.end(j, ok, errors.New("session lost"))
	i.core.Completed(x, 1, !ok, i.w.now)
	i.settle()
}

func (i *simInitiator) end(j *job, ok bool, err error) {
	j.ended++
	if !ok {
		j.err = err
	}
	if p := i.peers[j.to]; j.order <= p.ended {
		i.w.wrong("request %d of a target has ended after %d", j.order, p.ended)
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
		i.w.after(10*time.Microsecond, func() { i.complete(x, gen, false) })
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
	next := i.core.Next()
	if next >= i.timer || i.dead {
		return
	}
	at := max(next, i.w.now)
	i.timer = at
	i.w.after(at-i.w.now, func() {
		if i.timer != at || i.dead {
			return
		}
		i.timer = Never
		i.core.Tick(i.w.now)
		if i.core.Next() <= i.w.now {
			i.core.Tick(i.w.now) // what the first one did has let others wait
		}
		i.settle()
		if next := i.core.Next(); next <= i.w.now && !i.dead {
			i.w.wrong("initiator wants a tick for %v at %v, again", next, i.w.now)
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
		if int(p.pending) != len(i.peers[p].queue) {
			i.w.wrong("%d requests wait, the machine knows of %d", len(i.peers[p].queue), p.pending)
		}
		if p.rest == inLine {
			waiting++
		}
		if p.pending > 0 && p.rest == nowhere && p.ctx == nil && !i.dead {
			i.w.wrong("a target with %d requests waits for nothing", p.pending)
		}
		if p.ctx != nil && p.rest != nowhere || p.ctx != nil && p.ctx.peer != p {
			i.w.wrong("a target has a context and waits for one")
		}
	}
	if waiting != c.waiting {
		i.w.wrong("%d targets in line, counted are %d", waiting, c.waiting)
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
			i.w.wrong("context %d is empty in state %d, and somebody waits for it", k, x.state)
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
		if m.Kind == wire.Connect || m.Kind == wire.Renew {
			m.QPN = i.qps[m.Context].qpn
		}
		w.carry(a.To, m)
	case ActJoin:
		x := a.Context
		q := &i.qps[x.Index]
		if len(q.jobs) != 0 || q.busy {
			w.wrong("context connected while it is in use")
		}
		q.gen++
		q.busy = true
		resumed := a.Message.Kind == 0
		w.after(400*time.Microsecond, func() {
			q.remote, q.next, q.target, q.owner, q.session, q.bad, q.busy = a.Message.QPN, x.Session.PSN, a.Message.From, a.Peer, x.Session.ID, false, false
			q.shared = 0
			if resumed {
				w.resumed++
			}
			var err error
			if w.fails() {
				err = errFault
			}
			if !i.dead {
				i.core.Joined(x, err, w.now)
				i.settle()
			}
		})
	case ActReset:
		x := a.Context
		q := &i.qps[x.Index]
		if len(q.jobs) != 0 {
			w.wrong("context reset with %d requests in it", len(q.jobs))
		}
		if q.busy {
			w.wrong("context reset while it is being connected")
		}
		q.gen++
		q.busy = true
		w.after(time.Duration(w.rng.Int64N(int64(time.Millisecond))), func() {
			q.busy = false
			var err error
			if w.fails() {
				err = errFault
			}
			if a.Again {
				q.qpn = w.qpn()
			}
			if !i.dead {
				i.core.ResetDone(x, err, w.now)
				i.settle()
			}
		})
	case ActAbort:
		i.flush(a.Context)
	case ActReady:
		i.qps[a.Context.Index].shared = 0
		i.drain(a.Context)
	case ActFail:
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
	w.after(delay(), func() {
		for _, t := range w.targets {
			for _, s := range t.slots {
				if s.qpn == remote && s.session != 0 && s.session != session && s.psn == psn {
					w.wrong("a late packet of session %x is carried out under session %x", session, s.session)
				}
			}
		}
	})
	w.after(delay(), func() {
		// As Soft-RoCE sees it, which takes it from the host that it is connected
		// to.
		first := q.next - uint32(len(q.jobs))
		if q.session != session && q.owner.at.GID == host && !q.bad && !q.busy && len(q.jobs) > 0 && int32((psn-first)<<8) >= 0 {
			w.wrong("a late acknowledgement of session %x completes requests of session %x", session, q.session)
		}
	})
}

// lookUp is the question to a service: the answer may fail, be late, and be out
// of date when it comes.
func (i *simInitiator) lookUp(p *Peer) {
	w := i.w
	delay := func() time.Duration { return time.Duration(w.rng.Int64N(int64(20 * time.Millisecond))) }
	service := uint16(i.peers[p].address.At.QPN)
	w.after(delay(), func() {
		var at wire.ControlAddress
		var err error
		t := w.services[service]
		if t == nil || w.rng.Float64() < w.loss {
			err = errors.New("no answer")
		} else {
			at.QPN = t.at.QPN
		}
		w.after(delay(), func() {
			if i.dead {
				return
			}
			before := p.at.QPN
			i.core.Found(p, at, err, w.now)
			if p.at.QPN != before {
				w.found++
			}
			i.settle()
		})
	})
}

// kill ends whoever has the address.
func (w *world) kill(home wire.ControlAddress) {
	t := w.alive(home)
	if t == nil {
		return
	}
	w.targets = slices.DeleteFunc(w.targets, func(o *simTarget) bool { return o == t })
	for s, other := range w.services {
		if other == t {
			delete(w.services, s)
		}
	}
}

func (w *world) alive(home wire.ControlAddress) *simTarget {
	for _, t := range w.targets {
		if t.home == home {
			return t
		}
	}
	return nil
}
