// Package machine has the state machines of package lockoffload: operations of clients
// ([Acquire], [Reader], [Chain], [Releaser], [SwapWriter]), the recovery at the
// target ([Recovery]) and the target's [Agent], without clocks, goroutines
// or queue pairs.
//
// A [Machine] fills in a list of one-sided requests; its driver executes the list
// and steps the machine again. On a device a list is one batch and one wait; in tests it
// runs against plain memory, in any order that a device might choose. The agent takes
// requests, results and the time, and returns requests to post.
package machine

import (
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// OpKind is what a request does.
type OpKind uint8

const (
	OpCmpSwap OpKind = iota
	OpFetchAdd
	OpRead
	OpWrite
)

// Op is one request.
type Op struct {
	Kind  OpKind
	Off   int    // where in the region
	A, B  uint64 // compare and swap, or what to add
	At, N int    // local memory: data, or the 8 bytes of an atomic's result
}

// Verdict is what the driver of a machine must do next.
type Verdict uint8

const (
	Post  Verdict = iota // execute the list, then step
	Sleep                // pause, then step
	Last                 // post the list and be done; Settled checks its results
	Done                 // nothing
)

// Machine is one operation. An error comes with Last or Done.
type Machine interface {
	Step() (Verdict, error)
	// Undo is called instead of Step, once all results are in, by a caller
	// that gives up, until it returns Last or Done.
	Undo() (Verdict, error)
	Base() *Work
}

// Work is the state that all machines have: a list under construction, its memory,
// and counts.
type Work struct {
	L    memory.Layout
	Mem  []byte // local, memory.Layout.LocalSize bytes
	Ops  []Op
	word int
	// The request of the last list that gives the lock back, or -1, and what
	// its result has: all of want, or at least its bits.
	back int
	want uint64
	bits bool

	// Took is how long the last list took, at most, from before its post until after its end. The
	// driver sets it before it steps.
	Took time.Duration

	Wrote  bool // some list has a WRITE of a slot
	Missed bool
	// HandedOn is true if the target's agent was seen to have the lock: a client that
	// looks twice within TurnGap finds it free in the end.
	HandedOn bool
	Count    Counts
}

func (w *Work) Base() *Work { return w }

// Next returns the memory in which the copy to be written is made.
func (w *Work) Next() []byte { return w.Mem[w.L.WriteAt():][:w.L.CopyStride()] }

// begin starts a list. Results of the one before are gone.
func (w *Work) begin() { w.Ops, w.word, w.back = w.Ops[:0], 0, -1 }

func (w *Work) atomic(o Op) int {
	o.At, o.N = w.word*8, 8
	w.word++
	w.Ops = append(w.Ops, o)
	return len(w.Ops) - 1
}

func (w *Work) cmpSwap(off int, compare, swap uint64) int {
	return w.atomic(Op{Kind: OpCmpSwap, Off: off, A: compare, B: swap})
}

func (w *Work) fetchAdd(off int, add uint64) int {
	return w.atomic(Op{Kind: OpFetchAdd, Off: off, A: add})
}

// load adds an atomic that reads a word, and so stays in the order of the list.
func (w *Work) load(off int) int { return w.fetchAdd(off, 0) }

// read makes one READ of what lies together at both ends: a request costs more
// than the bytes of a few records.
func (w *Work) read(off, at, n int) {
	if i := len(w.Ops) - 1; i >= 0 {
		if o := &w.Ops[i]; o.Kind == OpRead && o.Off+o.N == off && o.At+o.N == at {
			o.N += n
			return
		}
	}
	w.Ops = append(w.Ops, Op{Kind: OpRead, Off: off, At: at, N: n})
}

func (w *Work) readSlot(slot int) { w.read(w.L.PairOff(slot), w.L.PairAt(), w.L.PairSize()) }

// Decode returns the current data from the copies that were read.
func (w *Work) Decode() (memory.Current, error) {
	return w.L.DecodePair(w.Mem[w.L.PairAt():][:w.L.PairSize()])
}

// writeSlot adds the WRITE of the next copy, which was staged, over the one that is
// not current.
func (w *Work) writeSlot(slot int, old *memory.Current) {
	w.Wrote = true
	n := w.L.Seal(w.Next(), old.Version+1)
	w.Ops = append(w.Ops, Op{Kind: OpWrite, Off: w.L.CopyOff(slot, 1-old.Which), At: w.L.WriteAt(), N: n})
}

// result returns the old value that the i-th request of the list, an atomic, found.
func (w *Work) result(i int) uint64 { return memory.LoadWord(w.Mem, w.Ops[i].At) }

// heldBy notes the tag found in a lock word that was not free.
func (w *Work) heldBy(tag uint64) { w.HandedOn = w.HandedOn || tag>>48 == memory.AgentOwner }

// Settled returns ErrLost if the last list, with its results in, gave a lock back that was
// no longer held.
func (w *Work) Settled() error {
	if w.back < 0 {
		return nil
	}
	got := w.result(w.back)
	if got == w.want || w.bits && got&w.want == w.want {
		return nil
	}
	w.Count.Lost++
	return ErrLost
}

// Grant is a lock that is held.
type Grant struct {
	Slot   int
	tag    uint64 // of an exclusive lock
	Token  uint64
	Shared bool
	word   bool // a shared lock that the lock word says, and no bit
}

// release adds the requests that give a lock back. All of them are harmless
// when it was lost meanwhile.
func (w *Work) release(g Grant, owner uint16) {
	if g.Shared && !g.word {
		off, bit := w.L.ReaderBit(g.Slot, owner)
		w.back, w.want, w.bits = w.fetchAdd(off, -bit), bit, true
		return
	}
	w.back, w.want, w.bits = w.cmpSwap(w.L.LockOff(g.Slot), g.tag, 0), g.tag, false
}
