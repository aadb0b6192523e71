package arena

import "github.com/goverbs/goverbs/cache/internal/wire"

// quarantined is a place in quarantine.
type quarantined struct {
	seq   uint64
	place wire.Place
}

// queue is a ring that grows. Deltas only count up, so its order is that of time.
type queue struct {
	ring       []quarantined
	head, size int
}

func (q *queue) len() int           { return q.size }
func (q *queue) first() quarantined { return q.ring[q.head] }

func (q *queue) push(r quarantined) {
	if q.size == len(q.ring) {
		grown := make([]quarantined, max(2*q.size, 64))
		for i := range q.size {
			grown[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.size)%len(q.ring)] = r
	q.size++
}

func (q *queue) pop() quarantined {
	r := q.ring[q.head]
	q.head = (q.head + 1) % len(q.ring)
	q.size--
	return r
}
