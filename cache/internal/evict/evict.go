// Package evict chooses the records that a full cache evicts: those with the fewest accesses for each byte.
//
// It is W-TinyLFU (Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", 2017) by
// bytes. New items go to a window of a tenth of the bytes, a FIFO list. Items that leave the window join the main
// part, which keeps FIFO lists by accesses for each byte in steps of a quarter of an octave, and of which the
// oldest item of the lowest list is evicted. Accesses are counted in a sketch, also those of keys that are not
// stored. An item moves to a higher list when its turn has come and its count has grown; when counters are halved
// all lists go down.
package evict

import "math/bits"

// Queue holds items by the numbers that the caller gives them. It is not for several goroutines.
type Queue struct {
	nodes  []node // the first are the heads of the lists, the others are the items
	sketch sketch
	base   int // the head of the lowest list, less one
	low    int // no list below it has items
	len    int
	bytes  int // of all items
	young  int // of those in the window
}

type node struct {
	fingerprint uint64
	prev, next  uint32 // in a ring with the list's head
	size        uint32 // 0: the item is in no list
	young       bool   // it is in the window
}

const (
	octave = 4
	lists  = 256 // of the main part: 2^16 accesses, sizes of 2^27, and as much again for ageing
	heads  = 1 + lists
	top    = 27 * octave // the list of one access for each byte
)

// New makes an empty queue.
func New() *Queue {
	q := &Queue{nodes: make([]node, heads), sketch: sketch{blocks: make([]block, 16)}, low: lists - 1}
	for i := range q.nodes {
		q.nodes[i].prev, q.nodes[i].next = uint32(i), uint32(i)
	}
	return q
}

// Insert adds an item of size > 0 that is not in the queue.
func (q *Queue) Insert(item uint32, fingerprint uint64, size int) {
	i := item + heads
	for int(i) >= len(q.nodes) {
		q.nodes = append(q.nodes, node{})
	}
	q.nodes[i] = node{fingerprint: fingerprint, size: uint32(size), young: true}
	q.link(0, i)
	q.len++
	q.bytes += size
	q.young += size
	q.sketch.reserve(q.len)
}

// Access counts n accesses to what has this fingerprint, stored or not.
func (q *Queue) Access(fingerprint uint64, n int) {
	for range q.sketch.add(fingerprint, n) {
		q.age()
	}
}

// Remove takes an item out, if it is there.
func (q *Queue) Remove(item uint32) {
	n := &q.nodes[item+heads]
	if n.size == 0 {
		return
	}
	if n.young {
		q.young -= int(n.size)
	}
	q.len--
	q.bytes -= int(n.size)
	q.unlink(item + heads)
	n.size = 0
}

// Evict takes out the item that is worth least, and returns it if there is any.
func (q *Queue) Evict() (item uint32, ok bool) {
	for q.len > 0 {
		if oldest := q.nodes[0].next; q.young*10 > q.bytes {
			n := &q.nodes[oldest]
			n.young = false
			q.young -= int(n.size)
			q.unlink(oldest)
			q.file(oldest, max(q.worth(n), 0))
			continue
		}
		head := q.head(q.low)
		oldest := q.nodes[head].next
		if oldest == head {
			q.low++
			continue
		}
		if worth := q.worth(&q.nodes[oldest]); worth > q.low {
			q.unlink(oldest)
			q.file(oldest, worth)
			continue
		}
		q.Remove(oldest - heads)
		return oldest - heads, true
	}
	return 0, false
}

// Len returns the number of items.
func (q *Queue) Len() int { return q.len }

// worth returns the list for an item: the logarithm of its accesses for each byte. It is -1 for an
// item without any.
func (q *Queue) worth(n *node) int {
	count := q.sketch.count(n.fingerprint)
	if count == 0 {
		return -1
	}
	return min(max(top+log(count)-log(int(n.size)), 0), lists-1)
}

// log returns the logarithm of x > 0 in quarters of an octave.
func log(x int) int {
	n := bits.Len(uint(x))
	return octave*n + x<<2>>(n-1)&3
}

// head returns the head of a list of the main part.
func (q *Queue) head(list int) uint32 { return uint32(1 + (q.base+list)%lists) }

// file puts an item at the end of a list of the main part.
func (q *Queue) file(i uint32, list int) {
	q.link(q.head(list), i)
	q.low = min(q.low, list)
}

// age moves all lists down by an octave: the lowest ones become one.
func (q *Queue) age() {
	for range octave {
		from, to := &q.nodes[q.head(0)], &q.nodes[q.head(1)]
		head, next := q.head(0), q.head(1)
		// Before what is there, since it is worth less. An empty list adds nothing.
		q.nodes[from.prev].next, q.nodes[to.next].prev = to.next, from.prev
		to.next, q.nodes[from.next].prev = from.next, next
		from.prev, from.next = head, head
		q.base = (q.base + 1) % lists
		q.low = max(q.low-1, 0)
	}
}

func (q *Queue) link(head, i uint32) {
	n, h := &q.nodes[i], &q.nodes[head]
	n.prev, n.next = h.prev, head
	q.nodes[h.prev].next, h.prev = i, i
}

func (q *Queue) unlink(i uint32) {
	n := &q.nodes[i]
	q.nodes[n.prev].next, q.nodes[n.next].prev = n.next, n.prev
}
