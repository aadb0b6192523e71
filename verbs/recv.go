package verbs

import (
	"runtime"

	"github.com/goverbs/goverbs/cgo"
)

// RecvBatch collects receives and posts them in one crossing into C. It works
// like [Batch].
type RecvBatch struct {
	qp    *QP  // or
	srq   *SRQ // shared
	chain *cgo.RecvChain
	wrs   []cgo.RecvWR // of chain
	n     int
	err   error
	by    *Dispatcher // whose tags its numbers have, or nil
}

// NewRecvBatch makes a batch of up to n receives; n above the queue's capacity
// ([QP.MaxRecvWR]) is refused.
func (q *QP) NewRecvBatch(n int) (*RecvBatch, error) {
	if err := q.life.Open("make receive batch for"); err != nil {
		return nil, err
	}
	if q.srq != nil {
		return nil, opError("make receive batch for", q.life.Label, ErrAttributes, "it receives from ", q.srq.life.Label)
	}
	if n <= 0 || n > int(q.cap.MaxRecvWR) {
		return nil, opError("make receive batch for", q.life.Label, ErrAttributes, n, " receives; the queue holds ", q.cap.MaxRecvWR)
	}
	chain, err := cgo.NewRecvChain(n, max(int(q.cap.MaxRecvSGE), 1))
	if err != nil {
		return nil, opError("make receive batch for", q.life.Label, err)
	}
	b := &RecvBatch{qp: q, chain: chain, wrs: chain.WRs}
	runtime.AddCleanup(b, (*cgo.RecvChain).Free, chain)
	return b, nil
}

func (b *RecvBatch) label() string {
	if b.srq != nil {
		return b.srq.life.Label
	}
	return b.qp.life.Label
}

// Len is the number of receives added since the last Post or Reset.
func (b *RecvBatch) Len() int { return b.n }

// Cap is the number of receives that the batch holds.
func (b *RecvBatch) Cap() int { return len(b.wrs) }

// Reset drops what was added.
func (b *RecvBatch) Reset() { b.n, b.err = 0, nil }

// Recv adds a receive into the scattered local memory, which belongs to the
// device until the completion. On UD the first 40 bytes are for the route
// header of the packet.
func (b *RecvBatch) Recv(id uint64, sges ...SGE) {
	i := b.n
	switch {
	case b.err != nil:
		return
	case i >= len(b.wrs):
		b.err = opError("add to receive batch of", b.label(), ErrBatchFull, "it holds ", len(b.wrs))
		return
	case len(sges) > b.chain.MaxSGE:
		b.err = opError("add to receive batch of", b.label(), ErrAttributes, len(sges), " scatter/gather entries; MaxRecvSGE is ", b.chain.MaxSGE)
		return
	}
	for j, s := range sges {
		if s.Length > maxSGELength {
			b.err = opError("add to receive batch of", b.label(), refusal(s), "local memory")
			return
		}
		b.chain.SGEs[i*b.chain.MaxSGE+j] = s
	}
	w := &b.wrs[i]
	w.ID, w.NumSGE = id, int32(len(sges))
	b.n = i + 1
}

// Post posts what was added and empties the batch, like [Batch.Post].
func (b *RecvBatch) Post() (n int, err error) {
	defer b.Reset()
	if b.err != nil || b.n == 0 {
		return 0, b.err
	}
	if b.srq != nil {
		return b.postShared()
	}
	q := b.qp
	if q.State() == StateReset {
		return 0, opError("post receive to", q.life.Label, ErrState, "it is in ", StateReset)
	}
	if r := q.receiver.Load(); r != nil && r.batch != b {
		return 0, opError("post receive to", q.life.Label, ErrInUse, "a Receiver has its receives")
	} else if r == nil {
		if err := b.by.mayPost("post receive that completes in", q.recvCQ); err != nil {
			return 0, err
		}
	}
	if !q.life.Enter() {
		return 0, opError("post receive to", q.life.Label, ErrClosed)
	}
	n, err = cgo.PostRecv(q.qp, b.chain, b.n)
	q.life.Exit()
	if err != nil {
		err = q.postError("post receive to", err)
	}
	return n, err
}
