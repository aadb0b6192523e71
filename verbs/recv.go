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
	by    *Dispatcher // owner of the tags in its numbers, or nil
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
			b.err = opError("add to receive batch of", b.label(), refusal(s), localMemory(s))
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
	if err := b.enter(); err != nil || b.n == 0 {
		return 0, err
	}
	if b.srq != nil {
		n, err = cgo.PostSRQRecv(b.srq.srq, b.chain, b.n)
	} else {
		n, err = cgo.PostRecv(b.qp.qp, b.chain, b.n)
	}
	b.exit()
	return n, b.postError(err)
}

// enter holds the queue open for a post.
func (b *RecvBatch) enter() error {
	const op = "post receive to"
	if b.err != nil || b.n == 0 {
		return b.err
	}
	if b.srq != nil {
		if !b.srq.life.Enter() {
			return opError(op, b.srq.life.Label, ErrClosed)
		}
		return nil
	}
	q := b.qp
	if q.State() == StateReset {
		return opError(op, q.life.Label, ErrState, "it is in ", StateReset)
	}
	if r := q.receiver.Load(); r != nil && r.batch != b {
		return opError(op, q.life.Label, ErrInUse, "a Receiver has its receives")
	} else if r == nil {
		if err := b.by.mayPost("post receive that completes in", q.recvCQ); err != nil {
			return err
		}
	}
	if !q.life.Enter() {
		return opError(op, q.life.Label, ErrClosed)
	}
	return nil
}

func (b *RecvBatch) exit() {
	if b.srq != nil {
		b.srq.life.Exit()
		return
	}
	b.qp.life.Exit()
}

// postError adds operation and object to the provider's error; nil stays nil.
func (b *RecvBatch) postError(err error) error {
	switch {
	case err == nil:
		return nil
	case b.srq != nil:
		return b.srq.postError(err)
	}
	return b.qp.postError("post receive to", err)
}
