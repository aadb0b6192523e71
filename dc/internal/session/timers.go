package session

import (
	"container/heap"
	"time"
)

// timers are the targets that wait for a time, the earliest first: a [heap.Interface].
type timers []*Peer

func (h *timers) set(p *Peer, at time.Duration) {
	p.timer = at
	if p.timed == 0 {
		heap.Push(h, p)
	} else {
		heap.Fix(h, int(p.timed)-1)
	}
}

func (h *timers) clear(p *Peer) {
	if p.timed != 0 {
		heap.Remove(h, int(p.timed)-1)
	}
}

func (h timers) next() time.Duration {
	if len(h) == 0 {
		return Never
	}
	return h[0].timer
}

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].timer < h[j].timer }

func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timed, h[j].timed = int32(i+1), int32(j+1)
}

func (h *timers) Push(p any) {
	*h = append(*h, p.(*Peer))
	p.(*Peer).timed = int32(len(*h))
}

func (h *timers) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last], p.timed = nil, 0
	*h = (*h)[:last]
	return p
}
