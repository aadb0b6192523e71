// Package fence decides when a server replaces a target through which many clients READ. The responder
// of a dynamically connected target serves any client that has its address, so one client cannot be
// cut off alone: the target is closed, and the clients that are to go on are told of another one
// before.
//
//	client gone, or late ──▶ Gone, Late
//	                         Begin: make another target
//	Opened ────────────────▶ tell it to all clients that are not gone
//	the old one is closed ─▶ Closed: these clients READ nothing any more
//
// A client that is gone without having said that its READs have ended costs nothing until it holds up
// memory: then it is late, and goes with all others that are gone by then. It has no I/O and no clock.
package fence

import "time"

// MaxGone is how many clients may be gone without being late before the target is replaced all the same:
// the server remembers each.
const MaxGone = 256

// Fence is the state of one server. Times count from any moment.
type Fence struct {
	// Every is the shortest time between the beginnings of two replacements.
	Every time.Duration

	gone   map[uint64]bool // clients that are told nothing any more; true: they may only READ through the target that is closed next
	due    bool            // one of them holds up memory
	busy   bool            // a target is being replaced
	begun  time.Duration   // when that began last
	before bool            // there was a replacement
}

// Gone notes that a client is told of no target any more, and may READ through those that it was told
// of.
func (f *Fence) Gone(id uint64) {
	if f.gone == nil {
		f.gone = map[uint64]bool{}
	}
	if _, ok := f.gone[id]; !ok {
		f.gone[id] = false
	}
}

// Late notes that a client holds up memory, which also makes it gone.
func (f *Fence) Late(id uint64) {
	f.Gone(id)
	f.due = true
}

// Want requests a replacement although no client is late, such as of a target that could not be made.
func (f *Fence) Want() { f.due = true }

// IsGone reports whether a client is to be told nothing.
func (f *Fence) IsGone(id uint64) bool {
	_, ok := f.gone[id]
	return ok
}

// Begin reports whether the target is to be replaced now, and notes that this has begun.
func (f *Fence) Begin(now time.Duration) bool {
	if f.busy || !f.due && len(f.gone) < MaxGone || f.before && now-f.begun < f.Every {
		return false
	}
	f.busy, f.before, f.begun = true, true, now
	return true
}

// Opened is called when there is another target, or none, before any client is told: clients that are
// gone by then go with the old one.
func (f *Fence) Opened() {
	f.due = false
	for id := range f.gone {
		f.gone[id] = true
	}
}

// Closed is called when the old target no longer responds. It returns the clients that READ nothing
// any more.
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

// Len returns how many clients are gone and may READ.
func (f *Fence) Len() int { return len(f.gone) }
