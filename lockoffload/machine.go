package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// Operations of clients, and the recovery at the target, are machines without
// clocks, goroutines or queue pairs. A machine fills in a list of one-sided
// requests; whoever drives it executes the list and steps the machine again.
// On a device a list is one batch and one wait; in tests it runs against plain
// memory, in any order that a device might choose.

type opKind uint8

const (
	opCmpSwap opKind = iota
	opFetchAdd
	opRead
	opWrite
)

// op is one request.
type op struct {
	kind  opKind
	off   int    // where in the region
	a, b  uint64 // compare and swap, or what to add
	at, n int    // local memory: data, or the 8 bytes of an atomic's result
}

// verdict is what a machine wants next.
type verdict uint8

const (
	post  verdict = iota // execute the list, then step
	sleep                // pause, then step
	last                 // post the list and be done; settled looks at its results
	done                 // nothing
)

// machine is one operation. An error comes with last or done.
type machine interface {
	step() (verdict, error)
	// undo is called instead of step, once all results are in, by a caller
	// that gives up, until the answer is last or done.
	undo() (verdict, error)
	base() *work
}

// work is what all machines have: a list under construction, its memory, what
// they count.
type work struct {
	l    memory.Layout
	mem  []byte
	ops  []op
	word int
	// The request of the last list that gives the lock back, or -1, and what
	// its result has: all of want, or at least its bits.
	back int
	want uint64
	bits bool

	far    int // pauses are so many times as long; 0 is 1
	missed bool
	count  Counts
}

func (w *work) base() *work { return w }

// next is where the copy to be written is made.
func (w *work) next() []byte { return w.mem[w.l.WriteAt():][:w.l.CopyStride()] }

// begin starts a list. Results of the one before are gone.
func (w *work) begin() { w.ops, w.word, w.back = w.ops[:0], 0, -1 }

func (w *work) atomic(o op) int {
	o.at, o.n = w.word*8, 8
	w.word++
	w.ops = append(w.ops, o)
	return len(w.ops) - 1
}

func (w *work) cmpSwap(off int, compare, swap uint64) int {
	return w.atomic(op{kind: opCmpSwap, off: off, a: compare, b: swap})
}

func (w *work) fetchAdd(off int, add uint64) int {
	return w.atomic(op{kind: opFetchAdd, off: off, a: add})
}

// load is a READ of a word that stays in the order of the list.
func (w *work) load(off int) int { return w.fetchAdd(off, 0) }

// read makes one READ of what lies together at both ends: a request costs more
// than the bytes of a few records.
func (w *work) read(off, at, n int) {
	if i := len(w.ops) - 1; i >= 0 {
		if o := &w.ops[i]; o.kind == opRead && o.off+o.n == off && o.at+o.n == at {
			o.n += n
			return
		}
	}
	w.ops = append(w.ops, op{kind: opRead, off: off, at: at, n: n})
}

func (w *work) readSlot(slot int) { w.read(w.l.PairOff(slot), w.l.PairAt(), w.l.PairSize()) }

// decode looks at the copies that were read.
func (w *work) decode() (memory.Current, error) {
	return w.l.DecodePair(w.mem[w.l.PairAt():][:w.l.PairSize()])
}

// writeSlot adds the WRITE of the next copy, which was staged, over the one that is
// not current.
func (w *work) writeSlot(slot int, old *memory.Current) {
	n := w.l.Seal(w.next(), old.Version+1)
	w.ops = append(w.ops, op{kind: opWrite, off: w.l.CopyOff(slot, 1-old.Which), at: w.l.WriteAt(), n: n})
}

// result is the old value that the i-th request of the list, an atomic, found.
func (w *work) result(i int) uint64 { return memory.LoadWord(w.mem, w.ops[i].at) }

// settled is called when the results of the last list are in.
func (w *work) settled() error {
	if w.back < 0 {
		return nil
	}
	got := w.result(w.back)
	if got == w.want || w.bits && got&w.want == w.want {
		return nil
	}
	w.count.Lost++
	return ErrLost
}

// grant is a lock that is held.
type grant struct {
	slot   int
	tag    uint64 // of an exclusive lock
	token  uint64
	shared bool
	word   bool // a shared lock that the lock word says, and no bit
	fair   bool
	ticket uint32
}

// release adds the requests that give a lock back. All of them are harmless
// when it was lost meanwhile.
func (w *work) release(g grant, owner uint16) {
	if g.shared && !g.word {
		off, bit := w.l.ReaderBit(g.slot, owner)
		w.back, w.want, w.bits = w.fetchAdd(off, -bit), bit, true
		return
	}
	w.back, w.want, w.bits = w.cmpSwap(w.l.LockOff(g.slot), g.tag, 0), g.tag, false
	if g.fair {
		w.passOn(g.slot, memory.QueueEntry(owner, uint16(g.tag>>32), g.ticket))
	}
}

// passOn ends the turn of a ticket.
func (w *work) passOn(slot int, entry uint64) {
	ticket := uint32(entry)
	w.cmpSwap(w.l.QueueOff(slot, ticket), entry, 0)
	w.fetchAdd(w.l.TicketOff(slot), memory.PassTicket(ticket))
}
