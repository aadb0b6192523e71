package verbs

import "github.com/goverbs/goverbs/cgo"

// Bits are those of package experimental.
const (
	flushGlobal     = 1
	flushPersistent = 2

	OnDemand, HugePages                  = onDemand, hugePages
	FlushableGlobal, FlushablePersistent = flushableGlobal, flushablePersistent
	OpFlush, FieldSender                 = opFlush, fieldSender
	FlushGlobal, FlushPersistent         = flushGlobal, flushPersistent
)

var (
	CheckTransition = checkTransition
	ErrNoResult     = errNoResult
)

// Credits is how many requests the queue has room for, and how many at all.
func Credits(r *Requester) (have, capacity int32) { return r.credits.Load(), r.capacity }

// Starved reports whether a post waits for a slot.
func Starved(r *Requester) bool { return r.starved.Load() }

// ErrorUntold moves a queue pair to [StateError] as a device does by itself:
// requests are flushed, and the cause is not known yet.
func ErrorUntold(q *QP) error {
	return cgo.ModifyQP(q.qp, &cgo.QPAttr{State: uint32(StateError)}, uint32(AttrState))
}
