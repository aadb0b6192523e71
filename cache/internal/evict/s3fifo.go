// Package evict chooses what a full cache forgets: S3-FIFO (Yang et al., "FIFO queues are
// all you need for cache eviction", SOSP 2023), by bytes.
//
// New items go to a small queue. Those that are not accessed on their way through it are
// forgotten, all but their fingerprints; the others go to the main queue, and so does what
// comes back while its fingerprint is remembered. The main queue gives an accessed item
// another turn for each access, at most three.
package evict

// Queue holds items by the numbers that the caller gives them. It is not for several
// goroutines.
type Queue struct {
	nodes       []node
	small, main list
	ghost       ghost
}

type node struct {
	fingerprint uint64
	prev, next  uint32
	size        uint32
	freq        uint8
	where       uint8
}

const (
	nowhere = iota
	inSmall
	inMain
)

const (
	nil32   = ^uint32(0)
	maxFreq = 3
)

type list struct {
	head, tail uint32
	bytes, n   int
}

// New makes an empty queue.
func New() *Queue {
	return &Queue{small: list{head: nil32, tail: nil32}, main: list{head: nil32, tail: nil32}}
}

// Insert adds an item that is in no queue.
func (q *Queue) Insert(item uint32, fingerprint uint64, size int) {
	for int(item) >= len(q.nodes) {
		q.nodes = append(q.nodes, node{})
	}
	q.nodes[item] = node{fingerprint: fingerprint, size: uint32(size)}
	if q.ghost.take(fingerprint) {
		q.push(item, inMain)
	} else {
		q.push(item, inSmall)
	}
}

// Access notes that an item was read or written.
func (q *Queue) Access(item uint32) {
	if n := &q.nodes[item]; n.freq < maxFreq {
		n.freq++
	}
}

// Resize notes that an item has another size; it keeps its place.
func (q *Queue) Resize(item uint32, size int) {
	n := &q.nodes[item]
	q.list(n.where).bytes += size - int(n.size)
	n.size = uint32(size)
}

// Remove takes an item out.
func (q *Queue) Remove(item uint32) { q.unlink(item) }

// Evict chooses an item, takes it out, and answers it, if there is any.
func (q *Queue) Evict() (item uint32, ok bool) {
	for {
		switch {
		case q.small.n > 0 && q.small.bytes*10 >= q.small.bytes+q.main.bytes:
			item := q.small.tail
			n := &q.nodes[item]
			q.unlink(item)
			if n.freq == 0 {
				q.ghost.add(n.fingerprint, q.main.n)
				return item, true
			}
			n.freq = 0
			q.push(item, inMain)
		case q.main.n > 0:
			item := q.main.tail
			n := &q.nodes[item]
			q.unlink(item)
			if n.freq == 0 {
				return item, true
			}
			n.freq--
			q.push(item, inMain)
		default:
			return 0, false
		}
	}
}

// Len is the number of items.
func (q *Queue) Len() int { return q.small.n + q.main.n }

func (q *Queue) list(where uint8) *list {
	if where == inSmall {
		return &q.small
	}
	return &q.main
}

func (q *Queue) push(item uint32, where uint8) {
	n, l := &q.nodes[item], q.list(where)
	n.where, n.prev, n.next = where, nil32, l.head
	if l.head != nil32 {
		q.nodes[l.head].prev = item
	} else {
		l.tail = item
	}
	l.head = item
	l.n++
	l.bytes += int(n.size)
}

func (q *Queue) unlink(item uint32) {
	n := &q.nodes[item]
	if n.where == nowhere {
		return
	}
	l := q.list(n.where)
	if n.prev != nil32 {
		q.nodes[n.prev].next = n.next
	} else {
		l.head = n.next
	}
	if n.next != nil32 {
		q.nodes[n.next].prev = n.prev
	} else {
		l.tail = n.prev
	}
	l.n--
	l.bytes -= int(n.size)
	n.where = nowhere
}
