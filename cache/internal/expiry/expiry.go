// Package expiry finds the items that are due. It is a hierarchical timing wheel (Varghese and Lauck,
// "Hashed and Hierarchical Timing Wheels", 1987): an item is filed by the highest digit in which its
// time differs from that of the wheel, and filed anew when the wheel gets there, at most once for each
// digit.
package expiry

import "math/bits"

// Queue holds items by the numbers that the caller gives them, with the times at which they are due. The zero value
// is not usable: see [New]. It is not for several goroutines.
type Queue struct {
	nodes  []node         // the first are the heads of the lists, the others are the items
	full   [levels]uint64 // the lists that may have items
	last   uint64         // the time of the wheel: what is due later is in a list of its own
	refile uint32         // the head of a list with items to be filed anew
}

type node struct {
	prev, next uint32 // in a ring with the list's head
	at         uint64 // 0: the item is in no list
}

const (
	digit  = 6 // bits
	slots  = 1 << digit
	levels = 11 // digits of 64 bits
	due    = 0  // the head of the items that are due
	heads  = 1 + levels*slots
)

// New makes an empty queue.
func New() *Queue {
	q := &Queue{nodes: make([]node, heads)}
	for i := range q.nodes {
		q.nodes[i].prev, q.nodes[i].next = uint32(i), uint32(i)
	}
	return q
}

// Insert adds an item that is due at a time other than 0.
func (q *Queue) Insert(item uint32, at uint64) {
	i := item + heads
	for int(i) >= len(q.nodes) {
		q.nodes = append(q.nodes, node{})
	}
	q.nodes[i].at = at
	q.file(i)
}

// Remove takes an item out, if it is there.
func (q *Queue) Remove(item uint32) {
	i := item + heads
	if int(i) < len(q.nodes) && q.nodes[i].at != 0 {
		q.unlink(i)
		q.nodes[i].at = 0
	}
}

// Due returns an item that is due by now, and leaves it there. It files at most steps items anew, and reports
// whether it gave up for that.
func (q *Queue) Due(now uint64, steps int) (item uint32, ok, more bool) {
	for {
		if i := q.nodes[due].next; i != due {
			return i - heads, true, false
		}
		if i := q.nodes[q.refile].next; i != q.refile {
			if steps--; steps < 0 {
				return 0, false, true
			}
			q.unlink(i)
			q.file(i)
			continue
		}
		level := 0
		for level < levels && q.full[level] == 0 {
			level++
		}
		if level == levels {
			return 0, false, false
		}
		slot := bits.TrailingZeros64(q.full[level])
		at := q.last>>(digit*(level+1))<<(digit*(level+1)) | uint64(slot)<<(digit*level)
		if at > now {
			return 0, false, false
		}
		q.last, q.refile = at, head(level, slot)
		q.full[level] &^= 1 << slot
	}
}

func head(level, slot int) uint32 { return uint32(1 + level*slots + slot) }

func (q *Queue) file(i uint32) {
	at, h := q.nodes[i].at, uint32(due)
	if at > q.last {
		level := (bits.Len64(at^q.last) - 1) / digit
		slot := int(at >> (digit * level) % slots)
		h = head(level, slot)
		q.full[level] |= 1 << slot
	}
	before := q.nodes[h].prev
	q.nodes[i].prev, q.nodes[i].next = before, h
	q.nodes[before].next, q.nodes[h].prev = i, i
}

func (q *Queue) unlink(i uint32) {
	n := &q.nodes[i]
	q.nodes[n.prev].next, q.nodes[n.next].prev = n.next, n.prev
}
