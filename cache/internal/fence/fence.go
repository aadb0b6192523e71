// Package fence says when a server replaces a target through which many clients READ. The responder of
// a dynamically connected target answers whoever has its address, so one client cannot be cut off alone:
// the target goes, and those that are to go on are told of another one before.
//
//	client gone, or late ──▶ Gone, Late
//	                         Begin: make another target
//	Opened ────────────────▶ tell it to all that are not gone
//	the old one is closed ─▶ Closed: these READ nothing any more
//
// A client that is gone without having said that its READs have ended costs nothing until it holds up
// memory: then it is late, and goes with all others that are gone by then. It has no I/O and no clock.
package fence

import "time"

// Most is how many clients may be gone without being late before the target is replaced all the same: the
// server remembers each.
const Most = 256

// Fence is of one server. Times are those since any moment.
type Fence struct {
	// Every is the shortest time between the beginnings of two replacements.
	Every time.Duration

	gone   map[uint64]bool // clients that are told nothing any more; whether they are of the target that is closed next
	due    bool            // one of them holds up memory
	busy   bool            // a target is being replaced
	begun  time.Duration   // when that began last
	before bool            // there was a replacement
}

// Gone is a client that is told of no target any more, and may READ through those that it was told of.
func (f *Fence) Gone(id uint64) {
	if f.gone == nil {
		f.gone = map[uint64]bool{}
	}
	if _, ok := f.gone[id]; !ok {
		f.gone[id] = false
	}
}

// Late is a client that holds up memory. It is gone.
func (f *Fence) Late(id uint64) {
	f.Gone(id)
	f.due = true
}

// Want has the target be replaced without anybody being late, such as one that could not be made.
func (f *Fence) Want() { f.due = true }

// IsGone tells whether a client is to be told nothing.
func (f *Fence) IsGone(id uint64) bool {
	_, ok := f.gone[id]
	return ok
}

// Begin tells whether the target is to be replaced now.
func (f *Fence) Begin(now time.Duration) bool {
	if f.busy || !f.due && len(f.gone) < Most || f.before && now-f.begun < f.Every {
		return false
	}
	f.busy, f.before, f.begun = true, true, now
	return true
}

// Opened is called when there is another target, or none, before anybody is told: who was gone by then
// goes with the old one.
func (f *Fence) Opened() {
	f.due = false
	for id := range f.gone {
		f.gone[id] = true
	}
}

// Closed is called when the old target answers nobody any more. It answers who READs nothing any more.
func (f *Fence) Closed() (over []uint64) {
	f.busy = false
	for id, old := range f.gone {
		if old {
			over = append(over, id)
			delete(f.gone, id)
		}
	}
	return over
}

// Len is how many clients are gone and may READ.
func (f *Fence) Len() int { return len(f.gone) }
