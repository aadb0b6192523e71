package machine

import (
	"errors"

	"github.com/anishathalye/porcupine"
)

// errHistory says that a history is not linearizable.
var errHistory = errors.New("the history is not linearizable")

// historyOp is one operation on the register that a record is, and perhaps on others of the
// slot at the same moment.
type historyOp struct {
	Record  int // over all slots
	Unit    int // the slot
	Place   int // in it
	Update  bool
	Blind   bool // an update that did not read, or it is unknown what it read
	Unknown bool
	Old     uint64 // what was read
	New     uint64
	Others  []historyOp
}

// slotState are the records of a slot.
type slotState [2]uint64

// historyModel has histories of operations: a slot is a few registers with read and read-modify-write of
// any of them together. A change with an unknown outcome may have happened or not.
var historyModel = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		by := map[int][]porcupine.Operation{}
		for _, o := range h {
			u := o.Input.(historyOp).Unit
			by[u] = append(by[u], o)
		}
		var out [][]porcupine.Operation
		for _, p := range by {
			out = append(out, p)
		}
		return out
	},
	Init: func() any { return slotState{} },
	Step: func(state, input, _ any) (bool, any) {
		o, before := input.(historyOp), state.(slotState)
		after := before
		for _, p := range append([]historyOp{o}, o.Others...) {
			switch {
			case o.Blind:
			case before[p.Place] != p.Old && o.Unknown:
				return true, before // it never happened
			case before[p.Place] != p.Old:
				return false, before
			}
			if o.Update {
				after[p.Place] = p.New
			}
		}
		return true, after
	},
}
