package lockoffload

import "encoding/binary"

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

// Local memory of a machine: results of atomics, the queue of tickets, the
// readers' words, then records.
const workWords = 16

// work is what all machines have: a list under construction, its memory, what
// they count.
type work struct {
	l    Layout
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

// memory is how much a machine needs that reads and writes so many records.
func (l *Layout) memory(records int) int {
	return l.recordsAt() + records*(l.recordSize()+l.copyStride())
}

func (l *Layout) queueAt() int { return workWords * 8 }

// readersAt is right before the records, as in the region.
func (l *Layout) readersAt() int { return l.recordsAt() - l.readersSize() }
func (l *Layout) recordsAt() int { return align(l.queueAt()+l.Clients*8+l.readersSize(), lineSize) }

// pair is where the copies of the i-th record of an operation are read to.
func (w *work) pair(i int) []byte {
	return w.mem[w.l.recordsAt()+i*w.l.recordSize():][:w.l.recordSize()]
}

// writeAt is where the i-th copy to be written is made. memory has as many of
// them as pairs; they lie behind the pairs.
func (w *work) writeAt(i int) int {
	pairs := (len(w.mem) - w.l.recordsAt()) / (w.l.recordSize() + w.l.copyStride())
	return w.l.recordsAt() + pairs*w.l.recordSize() + i*w.l.copyStride()
}

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

func (w *work) readRecords(slot int, records []int) {
	for i, r := range records {
		w.read(w.l.recordOff(slot, r), w.l.recordsAt()+i*w.l.recordSize(), w.l.recordSize())
	}
}

// result is the old value that the i-th request of the list, an atomic, found.
func (w *work) result(i int) uint64 { return loadWord(w.mem, w.ops[i].at) }

func loadWord(mem []byte, at int) uint64 { return binary.NativeEndian.Uint64(mem[at:]) }

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
	fair   bool
	ticket uint32
}

// release adds the requests that give a lock back. All of them are harmless
// when it was lost meanwhile.
func (w *work) release(g grant, owner uint16) {
	if g.shared {
		off, bit := w.l.readerBit(g.slot, owner)
		w.back, w.want, w.bits = w.fetchAdd(off, -bit), bit, true
		return
	}
	w.back, w.want, w.bits = w.cmpSwap(w.l.lockOff(g.slot), g.tag, 0), g.tag, false
	if g.fair {
		w.passOn(g.slot, queueEntry(owner, uint16(g.tag>>32), g.ticket))
	}
}

// passOn ends the turn of a ticket.
func (w *work) passOn(slot int, entry uint64) {
	ticket := uint32(entry)
	w.cmpSwap(w.l.queueOff(slot, ticket), entry, 0)
	w.fetchAdd(w.l.ticketOff(slot), passTicket(ticket))
}
