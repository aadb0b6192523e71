package session

import "time"

// timers are the targets that wait for a time, the earliest first: a heap.
type timers []*Peer

func (h *timers) set(p *Peer, at time.Duration) {
	if p.timed == 0 {
		*h = append(*h, p)
		p.timed = int32(len(*h))
	}
	p.timer = at
	h.down(h.up(int(p.timed) - 1))
}

func (h *timers) clear(p *Peer) {
	if p.timed == 0 {
		return
	}
	i, last := int(p.timed)-1, len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	p.timed = 0
	if i < last {
		h.down(h.up(i))
	}
}

func (h timers) next() time.Duration {
	if len(h) == 0 {
		return Never
	}
	return h[0].timer
}

func (h timers) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timed, h[j].timed = int32(i+1), int32(j+1)
}

func (h timers) up(i int) int {
	for i > 0 && h[i].timer < h[(i-1)/2].timer {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (h timers) down(i int) {
	for {
		k := 2*i + 1
		if k+1 < len(h) && h[k+1].timer < h[k].timer {
			k++
		}
		if k >= len(h) || h[i].timer <= h[k].timer {
			return
		}
		h.swap(i, k)
		i = k
	}
}
