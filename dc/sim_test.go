package dc

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// world is a network in virtual time. Control messages are lost, doubled and
// overtake each other; queue pairs are as reliable as RC.
type world struct {
	now       time.Duration
	events    events
	seq       int
	rng       *rand.Rand
	loss, dup float64
	spread    time.Duration // of the delay of control messages
	targets   map[uint32]*simTarget
	services  map[uint16]*simTarget // that can be asked where they are
	inits     map[uint32]*simInitiator
	lastQPN   uint32
	sessions  map[uint64]bool // every id that was ever given out
	resumed   int             // sessions taken up again
	found     int             // targets found at another place
	err       error
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

// carry takes a control message through the codec and the network.
func (w *world) carry(to place, m message) {
	m.mtu = verbs.MTU1024
	var b [messageLen]byte
	m.encode(b[:])
	copies := 1
	if w.rng.Float64() < w.loss {
		copies = 0
	} else if w.rng.Float64() < w.dup {
		copies = 1 + w.rng.IntN(3)
	}
	for range copies {
		w.after(50*time.Microsecond+time.Duration(w.rng.Int64N(int64(w.spread)+1)), func() {
			var got message
			if !got.decode(b[:]) {
				w.wrong("message does not survive its encoding")
			}
			if t := w.targets[to.qpn]; t != nil {
				t.core.received(&got, w.now)
				t.settle()
			} else if i := w.inits[to.qpn]; i != nil {
				i.core.received(&got, w.now)
				i.settle()
			}
		})
	}
}

type simSlot struct {
	qpn, peer, psn uint32
	session        uint64
}

type simTarget struct {
	w     *world
	at    place
	home  place // of the first one with its address
	core  *targetCore
	slots []simSlot
	timer time.Duration

	releasing []int
}

func (w *world) target(at, home place, slots int) *simTarget {
	t := &simTarget{w: w, at: at, home: home, timer: never}
	for range slots {
		t.slots = append(t.slots, simSlot{qpn: w.qpn()})
	}
	t.core = newTargetCore(w.rng.Uint64()|1, 42, slots, targetLimits{lease: 400 * time.Millisecond, retry: 10 * time.Millisecond}, t, func() uint64 {
		id := w.rng.Uint64()
		if w.sessions[id] {
			w.wrong("session id twice")
		}
		w.sessions[id] = true
		return id
	})
	w.targets[at.qpn] = t
	return t
}

func (t *simTarget) attach(slot int, session uint64, m *message) (uint32, error) {
	s := &t.slots[slot]
	if s.session != 0 {
		t.w.wrong("responder context given out twice")
	}
	s.peer, s.psn, s.session = m.qpn, m.psn, session
	return s.qpn, nil
}

func (t *simTarget) release(slot int, session uint64, clean bool) {
	s := &t.slots[slot]
	if s.session != session {
		t.w.wrong("another session released")
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

func (t *simTarget) prepare() {
	for len(t.releasing) > 0 {
		t.ready(t.releasing[0])
	}
}

func (t *simTarget) ready(slot int) {
	if k := slices.Index(t.releasing, slot); k >= 0 && t.w.targets[t.at.qpn] == t {
		t.releasing = slices.Delete(t.releasing, k, k+1)
		t.core.ready(slot, t.w.now)
	}
}

func (t *simTarget) send(to place, m *message) {
	out := *m
	out.from = t.at
	t.w.carry(to, out)
}

func (t *simTarget) settle() {
	next := t.core.next()
	if next >= t.timer || t.w.targets[t.at.qpn] != t {
		return
	}
	at := max(next, t.w.now)
	t.timer = at
	t.w.after(at-t.w.now, func() {
		if t.timer != at || t.w.targets[t.at.qpn] != t {
			return
		}
		t.timer = never
		t.core.tick(t.w.now)
		t.settle()
	})
}

// job is a request of the random program.
type job struct {
	to       *Peer
	on       *simInitiator
	executed int
	by       *simTarget
	ended    int
	err      error
}

type simLane struct {
	qpn, remote, next uint32
	target            place
	owner             *Peer
	session           uint64
	gen               int
	bad, busy         bool
	jobs              []*job
}

type simInitiator struct {
	w      *world
	at     place
	core   *initiatorCore
	lanes  []simLane
	queues map[*Peer][]*job
	known  map[place]*Peer
	timer  time.Duration
	dead   bool
}

func (w *world) initiator(contexts, quota int) *simInitiator {
	i := &simInitiator{w: w, at: place{qpn: w.qpn()}, queues: make(map[*Peer][]*job), known: make(map[place]*Peer), timer: never}
	i.core = newInitiatorCore(w.rng.Uint64(), contexts, initiatorLimits{quota: quota, hold: 5 * time.Millisecond, retransmit: 2 * time.Millisecond, connectTimeout: time.Second, parking: []Parking{ParkNever, ParkWhereProven, ParkWhereProven}[w.rng.IntN(3)]}, w.rng.Uint32)
	for range contexts {
		i.lanes = append(i.lanes, simLane{qpn: w.qpn()})
	}
	w.inits[i.at.qpn] = i
	return i
}

func (i *simInitiator) resolve(a Address, key uint64) *Peer {
	p := newPeer(i.core.peerNumber(), a, key)
	i.core.peers[p.number] = p
	i.known[p.place()] = p
	return p
}

func (i *simInitiator) post(p *Peer, j *job) {
	if i.dead {
		j.ended, j.err = j.ended+1, errors.New("dead")
		return
	}
	if x := i.core.admit(p); x != nil && len(i.lanes[x.index].jobs) < 16 {
		i.transmit(x, j)
	} else {
		i.queues[p] = append(i.queues[p], j)
		i.core.enqueue(p, 1, i.w.now)
	}
	i.settle()
}

// transmit is a request on the queue pair, as RC carries it.
func (i *simInitiator) transmit(x *initiatorContext, j *job) {
	l := &i.lanes[x.index]
	if l.owner != x.peer || j.to != x.peer || l.session != x.session.id {
		i.w.wrong("request posted to the wrong session")
	}
	l.jobs = append(l.jobs, j)
	i.core.posted(x, 1, 1)
	gen := l.gen
	if l.bad {
		i.w.after(10*time.Microsecond, func() { i.complete(x, gen, verbs.WCFlushed) })
		return
	}
	psn := l.next
	l.next = (l.next + 1) & 0xffffff
	i.w.after(30*time.Microsecond, func() { i.arrive(x, gen, psn, j) })
}

func (i *simInitiator) arrive(x *initiatorContext, gen int, psn uint32, j *job) {
	l := &i.lanes[x.index]
	if l.gen != gen || l.bad {
		return
	}
	if t := i.w.targets[l.target.qpn]; t != nil {
		for k := range t.slots {
			s := &t.slots[k]
			if s.qpn != l.remote || s.session == 0 {
				continue
			}
			if s.peer != l.qpn || s.psn != psn || s.session != l.session {
				i.w.wrong("packet %x of session %x met session %x, which expects %x", psn, l.session, s.session, s.psn)
			}
			s.psn = (s.psn + 1) & 0xffffff
			j.executed++
			j.by = t
			i.doubled(x, l.remote, psn)
			i.w.after(30*time.Microsecond, func() { i.complete(x, gen, verbs.WCSuccess) })
			return
		}
	}
	i.w.after(100*time.Millisecond, func() { i.complete(x, gen, verbs.WCRetryExceeded) })
}

// complete takes the next completion of a queue pair; after a failure the rest
// is flushed.
func (i *simInitiator) complete(x *initiatorContext, gen int, status verbs.WCStatus) {
	l := &i.lanes[x.index]
	if i.dead || l.gen != gen || len(l.jobs) == 0 {
		return
	}
	j := l.jobs[0]
	l.jobs = l.jobs[1:]
	j.ended++
	if l.bad && status == verbs.WCSuccess {
		status = verbs.WCFlushed
	}
	if status != verbs.WCSuccess {
		j.err = ErrSession
		i.flush(x)
	}
	if i.core.completed(x, 1, status != verbs.WCSuccess) {
		i.core.settle(x, i.w.now)
	}
	i.settle()
}

func (i *simInitiator) flush(x *initiatorContext) {
	l := &i.lanes[x.index]
	if l.bad {
		return
	}
	l.bad = true
	gen := l.gen
	for range l.jobs {
		i.w.after(10*time.Microsecond, func() { i.complete(x, gen, verbs.WCFlushed) })
	}
}

func (i *simInitiator) settle() {
	for len(i.core.actions) > 0 && !i.dead {
		a := i.core.actions[0]
		i.core.actions = i.core.actions[1:]
		i.act(a)
	}
	// What a context did not take when its turn came waits for its completions.
	for k := range i.core.contexts {
		if x := &i.core.contexts[k]; x.state == ctxAttached && x.peer.pending > 0 {
			i.drain(x)
		}
	}
	next := i.core.next()
	if next >= i.timer || i.dead {
		return
	}
	at := max(next, i.w.now)
	i.timer = at
	i.w.after(at-i.w.now, func() {
		if i.timer != at || i.dead {
			return
		}
		i.timer = never
		i.core.tick(i.w.now)
		i.settle()
	})
}

func (i *simInitiator) drain(x *initiatorContext) {
	p := x.peer
	for x.state == ctxAttached && len(i.queues[p]) > 0 && len(i.lanes[x.index].jobs) < 16 {
		j := i.queues[p][0]
		i.queues[p] = i.queues[p][1:]
		i.transmit(x, j)
		p.pending--
	}
}

func (i *simInitiator) act(a action) {
	switch a.kind {
	case actSend:
		m := a.m
		m.from = i.at
		if m.kind == msgConnect {
			m.qpn = i.lanes[m.context].qpn
		}
		i.w.carry(a.to, m)
	case actJoin:
		x := a.ctx
		l := &i.lanes[x.index]
		if len(l.jobs) != 0 || l.busy {
			i.w.wrong("context connected while it is in use")
		}
		l.gen++
		l.busy = true
		resumed := a.m.kind == 0
		i.w.after(400*time.Microsecond, func() {
			l.remote, l.next, l.target, l.owner, l.session, l.bad, l.busy = a.m.qpn, x.session.psn, a.m.from, a.peer, x.session.id, false, false
			if resumed {
				i.w.resumed++
			}
			i.core.joined(x, nil, i.w.now)
			i.settle()
		})
	case actReset:
		x := a.ctx
		l := &i.lanes[x.index]
		if len(l.jobs) != 0 {
			i.w.wrong("context reset with %d requests in it", len(l.jobs))
		}
		if l.busy {
			i.w.wrong("context reset while it is being connected")
		}
		l.gen++
		l.busy = true
		i.w.after(time.Duration(i.w.rng.Int64N(int64(time.Millisecond))), func() {
			l.busy = false
			i.core.resetDone(x, i.w.now)
			i.settle()
		})
	case actAbort:
		i.flush(a.ctx)
	case actReady:
		i.drain(a.ctx)
	case actFail:
		for _, j := range i.queues[a.peer] {
			j.ended++
			j.err = a.err
		}
		i.queues[a.peer] = nil
	case actLookup:
		i.lookUp(a.peer)
	}
}

// program is a random run; it answers its world and what was wrong.
func program(seed uint64) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{rng: rng, targets: map[uint32]*simTarget{}, services: map[uint16]*simTarget{}, inits: map[uint32]*simInitiator{}, sessions: map[uint64]bool{},
		loss: []float64{0, 0.1, 0.4}[rng.IntN(3)], dup: []float64{0, 0.3}[rng.IntN(2)], spread: []time.Duration{0, time.Millisecond, 20 * time.Millisecond}[rng.IntN(3)]}
	var places []place
	addrs := map[place]Address{}
	slots := 1 + rng.IntN(3)
	for n := range 1 + rng.IntN(6) {
		p := place{qpn: w.qpn(), gid: verbs.GID{15: byte(1 + rng.IntN(3))}} // some are on one host
		places = append(places, p)
		t := w.target(p, p, slots)
		a := Address{QPN: p.qpn, GID: p.gid}
		if rng.IntN(2) == 0 {
			a.Service = uint16(n + 1)
			w.services[a.Service] = t
		}
		if rng.IntN(4) == 0 {
			a.Incarnation = t.core.epoch
		}
		addrs[p] = a
	}
	var inits []*simInitiator
	var jobs []*job
	killed := map[place]bool{}
	for range 1 + rng.IntN(5) {
		i := w.initiator(1+rng.IntN(3), 1+rng.IntN(8))
		inits = append(inits, i)
		for _, p := range places {
			i.resolve(addrs[p], 42)
		}
	}
	const span = 300 * time.Millisecond
	for range 20 + rng.IntN(200) {
		i := inits[rng.IntN(len(inits))]
		at := places[rng.IntN(len(places))]
		j := &job{on: i}
		jobs = append(jobs, j)
		w.after(time.Duration(rng.Int64N(int64(span))), func() { j.to = i.known[at]; i.post(j.to, j) })
	}
	for range rng.IntN(40) {
		i, at := inits[rng.IntN(len(inits))], places[rng.IntN(len(places))]
		w.after(time.Duration(rng.Int64N(int64(span))), func() { i.forget(at) })
	}
	for range rng.IntN(3) { // a target dies, and perhaps another one takes its address
		p := places[rng.IntN(len(places))]
		at := time.Duration(rng.Int64N(int64(span)))
		killed[p] = true
		service := addrs[p].Service
		w.after(at, func() { w.kill(p) })
		if rng.IntN(2) == 0 {
			w.after(at+time.Duration(rng.Int64N(int64(50*time.Millisecond))), func() {
				w.kill(p)
				if service == 0 {
					w.target(p, p, slots)
					return
				}
				w.services[service] = w.target(place{qpn: w.qpn(), gid: p.gid}, p, slots)
			})
		}
	}
	var last []*job
	var deadOne *simInitiator
	if len(inits) > 1 && rng.IntN(3) == 0 {
		deadOne = inits[0]
		w.after(time.Duration(rng.Int64N(int64(span))), func() { deadOne.dead = true; delete(w.inits, deadOne.at.qpn) })
	}
	w.run(span)
	w.loss = 0
	w.run(60 * time.Second)
	for range 2 { // the first may meet a session whose target has died
		late := w.everywhere(inits)
		jobs = append(jobs, late...)
		w.run(w.now + 3*time.Second)
		last = late
	}
	if w.err != nil {
		return w, w.err
	}
	for n, j := range jobs {
		owner := deadOne != nil && j.on == deadOne
		switch {
		case j.executed > 1:
			return w, fmt.Errorf("request %d was carried out %d times", n, j.executed)
		case j.executed == 1 && j.by.home != home(j.to):
			return w, fmt.Errorf("request %d went to the wrong target", n)
		case j.executed == 1 && j.to.addr.Incarnation != 0 && j.to.addr.Incarnation != j.by.core.epoch:
			return w, fmt.Errorf("request %d went to another incarnation of its target", n)
		case owner:
		case j.ended != 1:
			return w, fmt.Errorf("request %d of %d has %d completions", n, len(jobs), j.ended)
		case j.err == nil && j.executed == 0:
			return w, fmt.Errorf("request %d succeeded without being carried out", n)
		case j.err != nil && !killed[home(j.to)] && w.spread == 0 && w.loss == 0 && !errors.Is(j.err, ErrSession) && !errors.Is(j.err, ErrUnreachable):
			return w, fmt.Errorf("request %d: %w", n, j.err)
		}
	}
	for _, j := range last {
		t := w.alive(home(j.to))
		if t != nil && (j.to.addr.Incarnation == 0 || j.to.addr.Incarnation == t.core.epoch) && j.err != nil {
			return w, fmt.Errorf("a target that lives is not reached: %w", j.err)
		}
	}
	// Dead initiators hold nothing; live ones at most what they have contexts for.
	for _, t := range w.targets {
		for _, s := range t.core.sessions {
			if deadOne != nil && s.sender == deadOne.core.id {
				return w, errors.New("a dead initiator still has a responder context")
			}
		}
		if len(t.core.sessions)+len(t.core.free) != slots {
			return w, fmt.Errorf("%d sessions and %d free responder contexts of %d", len(t.core.sessions), len(t.core.free), slots)
		}
	}
	return w, nil
}

// seeds is how many random programs to run: few on an emulated machine, where
// they say nothing that they do not say elsewhere.
func seeds(all, short uint64) uint64 {
	switch {
	case lab.In():
		return 40
	case testing.Short():
		return short
	}
	return all
}

// TestProtocol runs random programs over a bad network against the model.
func TestProtocol(t *testing.T) {
	seeds := seeds(3000, 300)
	resumed, found := 0, 0
	for seed := range seeds {
		w, err := program(seed)
		require.NoError(t, err, "seed %d", seed)
		resumed += w.resumed
		found += w.found
	}
	require.Greater(t, resumed, int(seeds), "sessions taken up again")
	require.Greater(t, found, int(seeds/20), "targets found at another place")
}
