package pacer

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// Wrap paces a queue pair by the pacer of its device. cq is its send completion queue.
// It must be an RC queue pair that is connected, and that nothing else posts to. A completion
// queue with completions that the program has not polled is refused with [verbs.ErrInUse], and so
// is one where sends are under way, if their queue pairs are [verbs.QPConfig.Extended]; other
// requests under way that complete in cq lose their completions.
func Wrap(qp *verbs.QP, cq *verbs.CQ) (*QP, error) {
	if qp == nil || qp.PD() == nil {
		return nil, opError("wrap", "queue pair", verbs.ErrAttributes)
	}
	p, err := ForDevice(qp.PD().Device())
	if err != nil {
		return nil, err
	}
	return p.Wrap(qp, cq, FlowConfig{})
}

// Wrap paces a queue pair by this pacer.
func (p *Pacer) Wrap(qp *verbs.QP, cq *verbs.CQ, cfg FlowConfig) (*QP, error) {
	const what = "wrap"
	if qp == nil || cq == nil || qp.SendCQ() != cq {
		return nil, opError(what, "queue pair", fmt.Errorf("%w: its sends complete elsewhere", verbs.ErrAttributes))
	}
	name := fmt.Sprintf("qp %#x", qp.Num())
	if qp.Type() != verbs.RC {
		return nil, opError(what, name, fmt.Errorf("%w: %v has no READ", verbs.ErrUnsupported, qp.Type()))
	}
	attr, err := qp.Query()
	if err != nil {
		return nil, err
	}
	if qp.State() < verbs.StateRTS || attr.MaxReadAtomic == 0 {
		return nil, opError(what, name, fmt.Errorf("%w: it is not connected for READs", verbs.ErrState))
	}
	release, err := driver.OwnSends(qp, "a pacer")
	if err != nil {
		return nil, opError(what, name, err)
	}
	if driver.Unfinished(cq) {
		release()
		return nil, opError(what, name, fmt.Errorf("%w: poll for the completions of its requests first", verbs.ErrInUse))
	}
	q := &QP{p: p, qp: qp, name: name, class: cfg.Class, cfg: cfg, signalsAll: driver.SignalsAll(qp), order: make([]entry, qp.MaxSendWR()),
		scratch: make([]verbs.SGE, max(qp.MaxSendSGE(), 1)), vacant: make(chan struct{}, 1)}
	if err := q.enroll(cq, int(attr.MaxReadAtomic)); err != nil {
		release()
		return nil, err
	}
	if err = q.equip(); err == nil {
		p.mu.Lock()
		err = q.cq.lost
		p.mu.Unlock()
		if err == nil {
			return q, nil
		}
	}
	p.mu.Lock()
	p.s.RemoveFlow(q.flow)
	q.cq.drop(q)
	p.mu.Unlock()
	release()
	return nil, errors.Join(err, q.leave())
}

// enroll makes the queue pair a flow of its pacer.
func (q *QP) enroll(cq *verbs.CQ, maxReads int) (err error) {
	p := q.p
	p.mu.Lock()
	defer p.mu.Unlock()
	const what = "wrap"
	switch {
	case p.closed:
		return opError(what, q.name, ErrClosed)
	case q.class < 0 || q.class >= p.s.Classes():
		return opError(what, q.name, ErrConfig)
	case p.paces(q.qp, cq):
		return opError(what, q.name, verbs.ErrInUse)
	}
	if q.flow, err = p.s.AddFlow(shaper.FlowConfig{Weight: q.cfg.Weight, Priority: q.cfg.Priority,
		MaxReads: maxReads, Depth: q.qp.MaxSendWR()}); err != nil {
		return opError(what, q.name, err)
	}
	if q.cq, err = p.queue(cq); err != nil {
		p.s.RemoveFlow(q.flow)
		return err
	}
	q.CQ = q.cq
	q.cq.qps = append(q.cq.qps, q)
	return nil
}

// equip makes the batches of the queue pair, and room in the completion queue for all that may
// complete at a time: every piece does, whatever the program signals.
func (q *QP) equip() (err error) {
	n := q.qp.MaxSendWR()
	q.adding = make([]shaper.Sub, 0, min(n, 64))
	if q.batch, err = q.cq.d.NewBatch(q.qp, min(n, 64)); err != nil {
		return err
	}
	if q.qp.RecvCQ() == q.cq.cq {
		n += q.qp.MaxRecvWR()
	}
	q.room, err = q.cq.cq.Dispatch((*engine)(q.cq), n)
	return err
}

// leave gives back the room, and the queue if it is the last one there.
func (q *QP) leave() error {
	var err error
	if q.room != nil {
		err = q.room.Close()
	}
	return errors.Join(err, q.cq.leave())
}

// QP returns the queue pair that is paced.
func (q *QP) QP() *verbs.QP { return q.qp }

// Recover has reconnect bring the queue pair, which is in error, to work again: by
// [verbs.QP.Quiesce], [verbs.QP.Init] and [verbs.QP.Connect], for instance. What was
// under way is over then: READs of [FlowConfig.Reissue] go on with the pieces that are
// missing, and all that was held goes. If reconnect fails, Recover may be tried again.
func (q *QP) Recover(reconnect func(*verbs.QP) error) error {
	p := q.p
	p.mu.Lock()
	if q.closed || q.closing {
		p.mu.Unlock()
		return opError("recover", q.name, ErrClosed)
	}
	q.down = true
	p.s.Down(q.flow)
	posted := p.receives(q)
	p.release()
	q.cq.settle() // what completed before the reset did, which may drop the completions
	err := reconnect(q.qp)
	q.cq.settle()
	p.mu.Lock()
	switch {
	case q.closed || q.closing: // the flow may be another's
		err = errors.Join(err, ErrClosed)
	default:
		p.s.FailAll(q.flow, q.cfg.Reissue)
		if err == nil {
			for _, tag := range posted { // the reset threw them away
				p.kept(tag)
			}
			q.down = false
			p.s.Up(q.flow)
		}
	}
	p.unlock()
	return opError("recover", q.name, err)
}

// Close closes the queue pair and takes its credit back. Requests that are not over
// get no completion; calls that wait for one end with [ErrClosed]. If the queue pair
// cannot be closed, nothing has changed. Closing twice is not an error.
func (q *QP) Close() error {
	q.ending.Lock()
	defer q.ending.Unlock()
	p := q.p
	p.mu.Lock()
	if q.closed {
		p.mu.Unlock()
		return nil
	}
	q.closing = true
	p.s.Down(q.flow)
	p.release()
	err := q.qp.Close()
	p.mu.Lock()
	q.closing = false
	if err != nil {
		if !q.down {
			p.s.Up(q.flow)
		}
		p.unlock()
		return err
	}
	q.closed = true
	p.s.FailAll(q.flow, false)
	p.s.Abandon(q.flow)
	p.collect()
	p.s.RemoveFlow(q.flow)
	q.cq.drop(q)
	for _, tag := range p.receives(q) {
		p.kept(tag)
	}
	close(q.vacant)
	p.unlock()
	return q.leave()
}
