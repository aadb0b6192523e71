package pacer

import (
	"math/rand/v2"

	"github.com/goverbs/goverbs/verbs"
)

// The tag of a receive has, below the bit recvTag, the generation of its slot, and the slot.
const (
	recvTag   = 1 << 47
	recvPlace = 1<<24 - 1
	recvGen   = 1<<23 - 1
)

// keep allocates a slot for a receive, and returns its tag.
func (p *Pacer) keep(id uint64, q *QP) (tag uint64) {
	at := len(p.recvs)
	if n := len(p.freeRecv); n > 0 {
		at = int(p.freeRecv[n-1])
		p.freeRecv = p.freeRecv[:n-1]
	} else {
		p.recvs = append(p.recvs, recv{gen: rand.Uint64()}) // unlike numbers that a program chooses
	}
	r := &p.recvs[at]
	r.id, r.q = id, q
	return recvTag | (r.gen&recvGen)<<24 | uint64(at)
}

// kept frees the slot of a receive, and returns its contents; ok is false if it was freed
// before.
func (p *Pacer) kept(tag uint64) (r recv, ok bool) {
	at := tag & recvPlace
	if at >= uint64(len(p.recvs)) || p.recvs[at].q == nil || p.recvs[at].gen&recvGen != tag>>24&recvGen {
		return recv{}, false
	}
	r = p.recvs[at]
	p.recvs[at].q = nil
	p.recvs[at].gen++
	p.freeRecv = append(p.freeRecv, uint32(at))
	return r, true
}

// receives returns the tags of a queue pair's receives that have slots.
func (p *Pacer) receives(q *QP) (tags []uint64) {
	for at := range p.recvs {
		if r := &p.recvs[at]; r.q == q {
			tags = append(tags, recvTag|(r.gen&recvGen)<<24|uint64(at))
		}
	}
	return tags
}

func (c *CQ) received(tag uint64, wc *verbs.WC) {
	if r, ok := c.p.kept(tag); ok {
		renamed := wc.WithID(r.id, wc.Len())
		c.push(&renamed, nil)
	}
}

// RecvBatch collects receives, as [verbs.RecvBatch] does.
type RecvBatch struct {
	q    *QP
	b    *verbs.RecvBatch
	tags []uint64 // of what was added
}

// NewRecvBatch makes a batch of up to n receives. They are not paced.
func (q *QP) NewRecvBatch(n int) (*RecvBatch, error) {
	var b *verbs.RecvBatch
	var err error
	if q.qp.RecvCQ() == q.cq.cq {
		b, err = q.cq.d.NewRecvBatch(q.qp, n)
	} else {
		b, err = q.qp.NewRecvBatch(n)
	}
	if err != nil {
		return nil, err
	}
	return &RecvBatch{q: q, b: b, tags: make([]uint64, 0, n)}, nil
}

// Recv adds a receive.
func (b *RecvBatch) Recv(id uint64, sges ...verbs.SGE) {
	q := b.q
	if q.qp.RecvCQ() != q.cq.cq || b.b.Len() == b.b.Cap() { // or is one too many, which Post says
		b.b.Recv(id, sges...)
		return
	}
	q.p.mu.Lock()
	tag := q.p.keep(id, q)
	q.p.mu.Unlock()
	b.tags = append(b.tags, tag)
	b.b.Recv(q.cq.d.ID(tag), sges...)
}

// Post posts the receives and empties the batch.
func (b *RecvBatch) Post() (n int, err error) {
	n, err = b.b.Post()
	b.ended(n)
	return n, err
}

// ended frees the slots of all receives but the first n.
func (b *RecvBatch) ended(n int) {
	if n < len(b.tags) {
		p := b.q.p
		p.mu.Lock()
		for _, tag := range b.tags[n:] {
			p.kept(tag)
		}
		p.mu.Unlock()
	}
	b.tags = b.tags[:0]
}
