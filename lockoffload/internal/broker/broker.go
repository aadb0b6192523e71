// Package broker decides which client gets the lock of a slot next, among clients that
// asked for a turn: the target's side of fair locks. It has no clock and posts nothing. Time
// is passed in, and a call leaves its output in fields of [Broker].
//
// A slot's lock word is changed by many clients, which need not know of the broker. When
// the word is free the broker reserves it for the client that asked first: it swaps a value
// in that was never there before, and sends it to the client, which swaps it for its own
// tag. So a reserved lock has no holder, and the reservation may be taken back at any time:
// a client that does not find it any more asks again. That is all that mutual exclusion
// needs, whatever happens to clients, messages and the broker; the rest is order.
//
//	                reserve: CMP_SWAP word 0 -> R          reply: R
//	waiting, first ──────────────────────────▶ reserved ───────────────▶ client: CMP_SWAP R -> tag, ..., tag -> 0
//	                                              │                          │ done
//	                                              ▼ it times out              ▼
//	                                       CMP_SWAP R -> 0, reserve for the next one
//
// A client says when it is done, and the word is reserved for the next one at once. If no
// client says so, because one died or because the word is held by one that did not ask
// here, the broker finds out by trying again.
//
// A word that is handed on like that is never free for clients that do not ask. So after
// a time of it the broker looks for the word to be free, and then leaves it alone for a
// while, even if clients wait.
package broker

import (
	"slices"
	"time"
)

// Config configures a broker; all fields must be set.
type Config struct {
	Lists    int           // under way at a time, at most
	Timeout  time.Duration // how long a reservation stands that its client does not end
	MinPause time.Duration // before a word that was not free is tried again, at first
	MaxPause time.Duration // and later
	// Eager is how often it is tried again without a pause when a client has said that
	// it is done: its unlock command may be on its way.
	Eager int
	// MaxRun is how long a word is handed on without a gap, and Gap how long it is left
	// free then, for clients that do not ask here.
	MaxRun, Gap time.Duration
	// MaxReserved is how many words are reserved for one peer at a time, at most, but for
	// those that it waits for when it asks for the last one.
	MaxReserved int
	// Word makes a lock word that is not 0 and was never in memory before.
	Word func() uint64
}

// Ask is a client's request for a turn. Seq is the client's own number for it.
type Ask struct {
	Peer int32
	Seq  uint64
}

// Reply goes to the client that asked.
type Reply struct {
	Ask
	Slot uint32
	Word uint64 // that the client finds in the lock word; 0: the request was taken back
}

// CmpSwap is a compare-and-swap of a lock word.
type CmpSwap struct{ Compare, Swap uint64 }

// List are compare-and-swaps to be executed in order.
type List struct {
	Index int // for [Broker.Result], below Config.Lists
	Slot  uint32
	Ops   [2]CmpSwap
	N     int // of Ops
}

// Never is a time that does not come.
const Never = time.Duration(1<<63 - 1)

// Broker is not for concurrent use.
type Broker struct {
	cfg   Config
	slots map[uint32]*slot
	lists []*slot       // by index, those under way
	free  []int         // indexes
	short []*slot       // that wait for an index
	has   map[int32]int // reservations that stand, by peer
	alarm time.Duration
	shut  bool

	// Output, taken and emptied by the driver.
	Lists   []List
	Replies []Reply

	Reserved uint64 // reservations that clients got
	Lapsed   uint64 // those that were taken back because they timed out
}

// slot is a slot for which requests wait, or that is reserved.
type slot struct {
	n     uint32
	queue []Ask // waiting requests, the oldest one first
	eager int   // tries without a pause that are left
	pause time.Duration
	at    time.Duration // when to try again

	word  uint64 // the reservation, or 0
	of    Ask
	until time.Duration // when it is taken back
	ended bool          // its client is done
	late  bool          // or is taken for one that does not come

	due time.Duration // when the word has been handed on for too long; Never: it is not
	gap time.Duration // the end of the time for which it is left free

	under  bool   // a list is under way
	clear  bool   // that takes the reservation back
	look   bool   // and looks whether the word is free
	next   uint64 // or makes this reservation; 0: none
	again  bool   // something happened meanwhile: try at once
	queued bool   // waits for an index
}

// New returns a broker without requests.
func New(cfg Config) *Broker {
	b := &Broker{cfg: cfg, slots: map[uint32]*slot{}, has: map[int32]int{}, lists: make([]*slot, cfg.Lists), alarm: Never}
	for i := range cfg.Lists {
		b.free = append(b.free, i)
	}
	return b
}

// Ask queues a request behind others for the same slot, unless its peer has too many
// reservations: then it is taken back at once.
func (b *Broker) Ask(now time.Duration, n uint32, a Ask) {
	if b.shut || b.has[a.Peer] >= b.cfg.MaxReserved {
		b.Replies = append(b.Replies, Reply{Ask: a, Slot: n})
		return
	}
	s := b.slots[n]
	if s == nil {
		s = &slot{n: n, pause: b.cfg.MinPause, due: Never}
		b.slots[n] = s
	}
	s.queue = append(s.queue, a)
	if len(s.queue) == 1 && s.word == 0 {
		b.try(now, s)
	} else if len(s.queue) == 1 {
		b.later(now, s)
	}
}

// Done says that a client gives the lock back that was reserved for its request, or wants
// it no more. It may be said before the lock is free, and twice, and need not be said.
func (b *Broker) Done(now time.Duration, n uint32, a Ask) {
	s := b.slots[n]
	if s == nil {
		return
	}
	if i := slices.Index(s.queue, a); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		b.Replies = append(b.Replies, Reply{Ask: a, Slot: n})
	}
	if s.word != 0 && s.of == a {
		s.ended, s.eager = true, b.cfg.Eager
	}
	b.try(now, s)
}

// Forget takes back all that a peer asked for, without a reply.
func (b *Broker) Forget(now time.Duration, peer int32) {
	for _, s := range b.slots {
		before := len(s.queue)
		s.queue = slices.DeleteFunc(s.queue, func(a Ask) bool { return a.Peer == peer })
		mine := s.word != 0 && s.of.Peer == peer
		s.ended = s.ended || mine
		if mine || len(s.queue) < before {
			b.try(now, s)
		}
	}
}

// Shut takes back all reservations and all waiting requests, and makes no more.
func (b *Broker) Shut(now time.Duration) {
	b.shut = true
	for _, s := range b.slots {
		for _, a := range s.queue {
			b.Replies = append(b.Replies, Reply{Ask: a, Slot: s.n})
		}
		s.queue, s.ended = nil, s.word != 0
		b.try(now, s)
	}
}

// Idle reports whether no request waits and nothing is reserved.
func (b *Broker) Idle() bool { return len(b.slots) == 0 }

// Waiting returns the number of requests that wait for a slot.
func (b *Broker) Waiting(n uint32) int {
	if s := b.slots[n]; s != nil {
		return len(s.queue)
	}
	return 0
}

// Alarm returns the time at which Turn is to be called at the latest.
func (b *Broker) Alarm() time.Duration { return b.alarm }

// Turn does what is due.
func (b *Broker) Turn(now time.Duration) {
	if now < b.alarm {
		return
	}
	b.alarm = Never
	for _, s := range b.slots {
		switch {
		case s.under || s.queued:
		case len(s.queue) > 0 && s.at <= now, s.word != 0 && s.until <= now:
			b.try(now, s)
		default:
			b.wake(s)
		}
	}
}

// try posts the list that a slot needs, or forgets a slot that needs nothing.
func (b *Broker) try(now time.Duration, s *slot) {
	switch {
	case s.under || s.queued:
		s.again = true
		return
	case s.word != 0 && s.until <= now && !s.ended:
		s.ended, s.late = true, true
	}
	if len(s.queue) == 0 && !s.ended {
		if s.word == 0 {
			delete(b.slots, s.n)
			return
		}
		b.wake(s) // for the end of the reservation
		return
	}
	if now < s.gap && !s.ended {
		s.at = s.gap
		b.wake(s)
		return
	}
	if len(b.free) == 0 {
		s.queued = true
		b.short = append(b.short, s)
		return
	}
	last := len(b.free) - 1
	l := List{Index: b.free[last], Slot: s.n}
	b.free, b.lists[l.Index] = b.free[:last], s
	s.under, s.again, s.clear, s.look, s.next = true, false, s.ended, false, 0
	if s.clear {
		l.Ops[l.N] = CmpSwap{s.word, 0}
		l.N++
	}
	switch {
	case len(s.queue) == 0 || now < s.gap:
	case now >= s.due:
		s.look = true
		l.Ops[l.N] = CmpSwap{0, 0}
		l.N++
	default:
		s.next = b.cfg.Word()
		l.Ops[l.N] = CmpSwap{0, s.next}
		l.N++
	}
	b.Lists = append(b.Lists, l)
}

// Result takes the words that a list's compare-and-swaps found, in their order.
func (b *Broker) Result(now time.Duration, index int, old []uint64) {
	s := b.lists[index]
	b.lists[index] = nil
	b.free = append(b.free, index)
	s.under = false
	if s.clear { // whether it was there still or not
		if s.late && old[0] == s.word {
			b.Lapsed++
		}
		b.ends(s)
		s.word, s.ended, s.late = 0, false, false
		old = old[1:]
	}
	switch {
	case s.next == 0 && !s.look:
	case s.look && old[0] == 0:
		s.gap, s.due = now+b.cfg.Gap, Never
		s.again = true
	case old[0] == 0:
		b.reserved(now, s)
	case s.eager > 0:
		s.eager--
		s.again = true
	default:
		b.later(now, s)
	}
	if s.again || s.ended || s.next == 0 && !s.look || len(s.queue) == 0 {
		b.try(now, s)
	}
	for len(b.short) > 0 && len(b.free) > 0 {
		first := b.short[0]
		b.short = b.short[1:]
		first.queued = false
		b.try(now, first)
	}
}

// reserved gives the word to the request that is first by now. An earlier reservation must
// have been taken and given back, or the word would not have been free.
func (b *Broker) reserved(now time.Duration, s *slot) {
	b.ends(s)
	s.word, s.until, s.ended, s.late = s.next, now+b.cfg.Timeout, false, false
	s.again, s.eager = false, 0
	s.pause = b.cfg.MinPause
	if s.due == Never {
		s.due = now + b.cfg.MaxRun
	}
	if len(s.queue) == 0 { // they went meanwhile
		s.of, s.ended = Ask{Peer: -1}, true
		return
	}
	s.of, s.queue = s.queue[0], s.queue[1:]
	b.Reserved++
	b.has[s.of.Peer]++
	b.Replies = append(b.Replies, Reply{Ask: s.of, Slot: s.n, Word: s.word})
	b.later(now, s)
}

// ends stops counting the reservation of a slot, if there is one.
func (b *Broker) ends(s *slot) {
	if s.word == 0 || s.of.Peer < 0 {
		return
	}
	if b.has[s.of.Peer]--; b.has[s.of.Peer] == 0 {
		delete(b.has, s.of.Peer)
	}
}

// later has a slot tried again after a pause, which grows.
func (b *Broker) later(now time.Duration, s *slot) {
	s.at = now + s.pause
	s.pause = min(2*s.pause, b.cfg.MaxPause)
	b.wake(s)
}

func (b *Broker) wake(s *slot) {
	if len(s.queue) > 0 {
		b.alarm = min(b.alarm, s.at)
	}
	if s.word != 0 {
		b.alarm = min(b.alarm, s.until)
	}
}
