package dc

import "time"

// overdue remembers sessions that their initiators have closed. A connect packet
// that comes late would open one again, under which late packets of the first
// are carried out once more: the number of the queue pair and those of the
// packets are the same. After failures that cannot be, since the responder
// context gets another number.
type overdue struct {
	ended map[contextKey]ending
	limit int // of entries, before those that are old are looked for
}

type ending struct {
	attempt uint32
	until   time.Duration
}

// add notes the end of a session, for as long as its lease was.
func (o *overdue) add(key contextKey, attempt uint32, now, lease time.Duration) {
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
	o.ended[key] = ending{attempt, now + lease}
}

// late tells whether a connect packet is of a session that is over.
func (o *overdue) late(key contextKey, attempt uint32) bool {
	e, ok := o.ended[key]
	return ok && int32(attempt-e.attempt) <= 0
}
