package session

// None is no index.
const None = ^uint32(0)

// Links link a machine's messages, by their indexes, into the queues of their flows, or leave
// them free.
type Links struct {
	next []uint32
	free uint32 // 1 more than the first free one, or 0
}

// Queue has the messages of a flow in their order. An empty one is [EmptyQueue].
type Queue struct{ Head, Tail uint32 }

// EmptyQueue is a queue without messages.
var EmptyQueue = Queue{None, None}

// New returns a free index. It is the number of messages so far if none of them is free.
func (l *Links) New() uint32 {
	if l.free == 0 {
		l.next = append(l.next, None)
		return uint32(len(l.next) - 1)
	}
	i := l.free - 1
	l.free = l.next[i]
	return i
}

// Free frees an index that is in no queue.
func (l *Links) Free(i uint32) { l.next[i], l.free = l.free, i+1 }

// Next returns the message behind i in its queue, or None.
func (l *Links) Next(i uint32) uint32 { return l.next[i] }

// Push adds a message at the end of a queue.
func (l *Links) Push(q *Queue, i uint32) {
	l.next[i] = None
	if q.Head == None {
		q.Head = i
	} else {
		l.next[q.Tail] = i
	}
	q.Tail = i
}

// PushFront adds a message in front of a queue.
func (l *Links) PushFront(q *Queue, i uint32) {
	l.next[i] = q.Head
	if q.Head == None {
		q.Tail = i
	}
	q.Head = i
}

// Pop removes the first message of a queue, which must not be empty.
func (l *Links) Pop(q *Queue) {
	q.Head = l.next[q.Head]
	if q.Head == None {
		q.Tail = None
	}
}

// Remove removes a message from a queue, if it is there.
func (l *Links) Remove(q *Queue, i uint32) {
	prev := None
	for j := q.Head; j != None; prev, j = j, l.next[j] {
		switch {
		case j != i:
			continue
		case prev == None:
			q.Head = l.next[j]
		default:
			l.next[prev] = l.next[j]
		}
		if q.Tail == i {
			q.Tail = prev
		}
		return
	}
}
