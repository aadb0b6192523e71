package session

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/internal/virtual"
)

// world is a network in virtual time. Control messages are lost, doubled and
// overtake each other; queue pairs are as reliable as RC. Whatever is walked here
// is walked in order, so that a seed repeats exactly.
type world struct {
	virtual.World
	rng       *rand.Rand
	loss, dup float64
	spread    time.Duration // of the delay of control messages
	faults    float64       // how often a modification of a queue pair fails
	unready   float64       // how often a target has no receive
	lease     time.Duration
	counts    bool         // targets take packets for signs of life
	targets   []*simTarget // those that live
	services  map[uint16]*simTarget
	inits     []*simInitiator
	lastQPN   uint32
	sessions  map[uint64]bool // every id that was ever given out
	resumed   int             // sessions taken up again
	found     int             // targets found at another place
	returned  int             // times that requests came back, since there was no receive
	spy       func(to wire.ControlAddress, b [wire.MessageLen]byte)
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
	if w.spy != nil {
		w.spy(to, b)
	}
	copies := 1
	if w.rng.Float64() < w.loss {
		copies = 0
	} else if w.rng.Float64() < w.dup {
		copies = 1 + w.rng.IntN(3)
	}
	for range copies {
		w.After(50*time.Microsecond+time.Duration(w.rng.Int64N(int64(w.spread)+1)), func() {
			var got wire.Message
			if !got.Decode(b[:]) {
				w.Wrong("message does not survive its encoding")
			}
			if t := w.targetAt(to.QPN); t != nil {
				t.core.Received(&got, w.Now)
				t.settle()
				return
			}
			for _, i := range w.inits {
				if i.at.QPN == to.QPN && !i.dead {
					i.core.Received(&got, w.Now)
					i.settle()
				}
			}
		})
	}
}

type simSlot struct {
	qpn, peer, psn uint32
	seen           uint32 // of psn, when that was looked at last
	session        uint64
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
	t.core = NewTarget(w.rng.Uint64()|1, simKey, slots, TargetLimits{Lease: w.lease, Retry: 10 * time.Millisecond, Recall: simRecall, PacketsCount: w.counts}, t, func() uint64 {
		id := w.rng.Uint64()
		if w.sessions[id] {
			w.Wrong("session id twice")
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
		t.w.Wrong("responder context given out twice")
	}
	s.peer, s.psn, s.seen, s.session = m.QPN, m.PSN, m.PSN, session
	if t.w.fails() {
		return 0, errFault
	}
	return s.qpn, nil
}

func (t *simTarget) Release(slot int, session uint64, clean bool) {
	s := &t.slots[slot]
	if s.session != session {
		t.w.Wrong("another session released")
	}
	if clean {
		for _, i := range t.w.inits {
			for k := range i.qps {
				if q := &i.qps[k]; q.session == session && !q.busy && !q.bad && len(q.jobs) > 0 {
					t.w.Wrong("the number of a responder context is kept whose initiator still sends to it")
				}
			}
		}
	}
	*s = simSlot{qpn: s.qpn}
	if !clean {
		s.qpn = t.w.qpn()
	}
	t.releasing = append(t.releasing, slot)
	t.w.After(300*time.Microsecond, func() {
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
	t.w.After(time.Millisecond, func() {
		t.ready(slot)
		t.settle()
	})
}

func (t *simTarget) Moved(slot int) bool {
	s := &t.slots[slot]
	moved := s.seen != s.psn
	s.seen = s.psn
	return moved
}

func (t *simTarget) ready(slot int) {
	if k := slices.Index(t.releasing, slot); k >= 0 && t.lives() {
		t.releasing = slices.Delete(t.releasing, k, k+1)
		var err error
		if t.w.fails() {
			err = errFault
		}
		t.core.Ready(slot, err, t.w.Now)
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
	at := max(next, t.w.Now)
	t.timer = at
	t.w.After(at-t.w.Now, func() {
		if t.timer != at || !t.lives() {
			return
		}
		t.timer = Never
		t.core.Tick(t.w.Now)
		if next := t.core.Next(); next <= t.w.Now {
			t.w.Wrong("target wants a tick for %v at %v, again", next, t.w.Now)
		}
		t.settle()
	})
}

// kill ends the target that has the address.
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
