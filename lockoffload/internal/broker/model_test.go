package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is lock words, a device that executes the broker's lists late, clients that ask,
// lock, die and change their minds, and others that take free words as they find them.
// Messages come in the order of their client, late.
type world struct {
	rng     *rand.Rand
	b       *Broker
	now     time.Duration
	words   []uint64
	owner   []int // of each word: the client that has its lock, or none
	fresh   map[uint64]bool
	under   []*simList
	clients []*simClient
	barge   bool
	calm    bool // nothing new begins

	order [][]Ask // requests that the broker has and has not replied to, for each slot
	since []time.Duration
	zero  []time.Duration // since when a word has been free
	run   []time.Duration // since when it has been handed on, or Never
	over  map[Ask]bool    // requests that got their reply
}

type simList struct {
	List
	at  int
	old []uint64
}

type simClient struct {
	id    int32
	seq   uint64
	state simState
	slot  uint32
	ask   Ask
	word  uint64
	until time.Duration // of what it does
	said  bool          // that it is done
	out   []message     // to the broker
	in    []Reply
}

type simState int

const (
	idle     simState = iota
	asked             // waits for a reply
	called            // has a reservation
	holding           // has the lock
	silent            // died with what it had; its session's end is to come
	departed          // died, and the broker is to hear of it
)

type message struct {
	at   time.Duration
	what func(now time.Duration)
}

const (
	none  = -1
	slack = 300 * time.Microsecond // what lists and looks take, at most
	lease = 3 * time.Millisecond
)

var limits = Config{Lists: 2, Timeout: 2 * time.Millisecond, MinPause: 100 * time.Microsecond, MaxPause: time.Millisecond, Eager: 3, MaxRun: 5 * time.Millisecond, Gap: 400 * time.Microsecond, MaxReserved: 100}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 14)), fresh: map[uint64]bool{}, over: map[Ask]bool{}, barge: seed%3 == 0}
	cfg := limits
	cfg.Lists = 1 + int(seed%3)
	var n uint64
	cfg.Word = func() uint64 { n++; return 1<<63 | n }
	w.b = New(cfg)
	for range 1 + seed%4 {
		w.words, w.owner, w.since, w.order = append(w.words, 0), append(w.owner, none), append(w.since, 0), append(w.order, nil)
		w.zero, w.run = append(w.zero, 0), append(w.run, Never)
	}
	for i := range 2 + seed%7 {
		w.clients = append(w.clients, &simClient{id: int32(i)})
	}
	return w
}

func (w *world) some(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// send has the broker hear of something, behind what the client has sent before.
func (w *world) send(c *simClient, what func(time.Duration)) {
	at := w.now + w.some(100*time.Microsecond)
	if n := len(c.out); n > 0 {
		at = max(at, c.out[n-1].at)
	}
	c.out = append(c.out, message{at, what})
}

func (w *world) done(c *simClient) {
	a, slot := c.ask, c.slot
	for range 1 + w.rng.IntN(8)/7 { // twice, now and then
		w.send(c, func(now time.Duration) {
			w.drop(slot, a)
			w.b.Done(now, slot, a)
		})
	}
}

// drop removes a request from those that wait for a reply.
func (w *world) drop(slot uint32, a Ask) {
	w.order[slot] = slices.DeleteFunc(w.order[slot], func(b Ask) bool { return a == b })
}

// swap is a client's own compare-and-swap.
func (w *world) swap(slot uint32, compare, to uint64) bool {
	if w.words[slot] != compare {
		return false
	}
	w.words[slot] = to
	if to == 0 && compare != 0 {
		w.since[slot], w.zero[slot] = w.now, w.now
	}
	return true
}

func tagOf(c *simClient) uint64 { return uint64(c.id+1)<<32 | c.seq }

// forgotten ends the runs of words that the broker knows nothing of.
func (w *world) forgotten() {
	for slot := range w.words {
		if w.b.slots[uint32(slot)] == nil {
			w.run[slot] = Never
		}
	}
}

// late returns an error for a word that is free, or reserved, for too long while requests
// wait.
func (w *world) late() error {
	for slot, word := range w.words {
		if len(w.order[slot]) == 0 || word != 0 && !w.fresh[word] {
			w.since[slot] = w.now
			continue
		}
		most := limits.MaxPause + limits.Gap + time.Duration(len(w.words))*slack
		if word != 0 {
			most += limits.Timeout
		}
		if w.now-w.since[slot] > most {
			return fmt.Errorf("slot %d has %#x and %d who wait, since %v", slot, word, len(w.order[slot]), w.now-w.since[slot])
		}
	}
	return nil
}

func (w *world) step() error {
	w.now += w.some(20 * time.Microsecond)
	for _, c := range w.clients {
		for len(c.out) > 0 && c.out[0].at <= w.now {
			m := c.out[0]
			c.out = c.out[1:]
			m.what(w.now)
			w.forgotten()
		}
		if len(c.in) > 0 && w.rng.IntN(3) == 0 {
			a := c.in[0]
			c.in = c.in[1:]
			if c.state == asked && a.Ask == c.ask {
				c.word, c.state = a.Word, called
				if a.Word == 0 {
					return fmt.Errorf("%+v was refused", a)
				}
			}
		}
		if w.rng.IntN(3) == 0 {
			if err := w.act(c); err != nil {
				return err
			}
		}
	}
	if len(w.under) > 0 {
		l := w.under[0] // a queue pair executes in order
		o := l.Ops[l.at]
		l.at++
		l.old = append(l.old, w.words[l.Slot])
		if w.swap(l.Slot, o.Compare, o.Swap) && o.Swap != 0 {
			if err := w.handedOn(l.Slot); err != nil {
				return err
			}
		}
		if l.at == l.N {
			w.under = w.under[1:]
			w.b.Result(w.now, l.Index, l.old)
			w.forgotten()
		}
	}
	if w.now >= w.b.Alarm() {
		w.b.Turn(w.now)
		w.forgotten()
	}
	if err := w.take(); err != nil {
		return err
	}
	return w.late()
}

func (w *world) quiet() bool {
	for _, c := range w.clients {
		if c.state != idle || len(c.out)+len(c.in) > 0 {
			return false
		}
	}
	return w.b.Idle() && len(w.under) == 0
}

func run(seed uint64) (reserved, lapsed uint64, err error) {
	w := newWorld(seed)
	for range 3000 {
		if err := w.step(); err != nil {
			return 0, 0, err
		}
	}
	w.calm = true
	for i := 0; !w.quiet(); i++ {
		if err := w.step(); err != nil {
			return 0, 0, err
		}
		if i > 20000 {
			return 0, 0, fmt.Errorf("no end: %+v", w.b.slots)
		}
	}
	for slot, word := range w.words {
		if word != 0 {
			return 0, 0, fmt.Errorf("slot %d keeps %#x", slot, word)
		}
	}
	if len(w.b.free) != w.b.cfg.Lists {
		return 0, 0, fmt.Errorf("%d of %d lists are free", len(w.b.free), w.b.cfg.Lists)
	}
	return w.b.Reserved, w.b.Lapsed, nil
}

// Whatever clients do and whenever they die: one has a lock at a time, waiting clients are
// served in the order in which they asked, a word that is free while requests wait is
// not left so, a client that does not come costs the reservation timeout, and the broker
// remembers nothing but waiting requests and reservations.
func TestBrokerAgainstModel(t *testing.T) {
	seeds := uint64(5000)
	if testing.Short() {
		seeds = 500
	}
	var reserved, lapsed uint64
	for seed := range seeds {
		r, l, err := run(seed)
		require.NoError(t, err, "seed %d", seed)
		reserved, lapsed = reserved+r, lapsed+l
	}
	t.Logf("%d reservations, %d lapsed", reserved, lapsed)
	require.Positive(t, lapsed)
	require.Greater(t, reserved, lapsed)
}
