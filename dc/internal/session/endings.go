package session

import "time"

// endings remembers sessions that their initiators have closed. A connect packet
// that comes late would open one again, under which late packets of the first are
// carried out once more: the number of the queue pair and those of the packets are
// the same. After failures that cannot be, since the responder context gets
// another number.
type endings struct {
	ended map[contextKey]ending
	limit int // of entries, before those that are old are looked for
}

type ending struct {
	attempt uint32
	until   time.Duration
	refused bool // it was never open
}

// lateConnect is how long a connect packet may be under way, or lie unread.
const lateConnect = 10 * time.Second

// add notes the end of a session.
func (o *endings) add(key contextKey, attempt uint32, refused bool, now, lease time.Duration) {
	if o.ended == nil {
		o.ended = make(map[contextKey]ending)
	}
	if len(o.ended) >= o.limit {
		for k, e := range o.ended {
			if e.until <= now {
				delete(o.ended, k)
			}
		}
		o.limit = max(64, 2*len(o.ended))
	}
	if e, ok := o.ended[key]; ok && int32(attempt-e.attempt) < 0 {
		return
	}
	o.ended[key] = ending{attempt, now + min(lease, lateConnect), refused}
}

// refused reports whether a connect packet is a copy of one that was refused.
func (o *endings) refused(key contextKey, attempt uint32) bool {
	e := o.ended[key]
	return e.refused && e.attempt == attempt
}

// late reports whether a connect packet is of a session that is over.
func (o *endings) late(key contextKey, attempt uint32) bool {
	e, ok := o.ended[key]
	return ok && int32(attempt-e.attempt) <= 0
}
