package verbs

import (
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// Post posts what was added and empties the batch. On an error the first n requests were
// posted and will complete; the others are dropped. If adding a request failed, none is
// posted. [ErrQueueFull] means that completions must be polled first. A queue pair made
// with [QPConfig.Extended] posts all or none. A queue pair that was not made for an
// operation refuses it with [ErrUnsupported].
func (b *Batch) Post() (n int, err error) {
	if err := b.enter(); err != nil || b.n == 0 {
		return 0, b.ended(err)
	}
	n, err = cgo.PostSend(b.qp.qp, b.qp.path, b.chain, b.n)
	b.exit()
	if err != nil {
		err = b.postError(err)
	}
	return n, b.ended(err)
}

// PostPoll is Post followed by [CQ.PollSpin] on cq, in one crossing into C:
// the fastest way to do one operation and wait for it. got completions were
// polled, and may well be 0.
func (b *Batch) PostPoll(cq *CQ, wcs []WC, spins int) (n, got int, err error) {
	if len(wcs) == 0 {
		n, err = b.Post()
		return n, 0, err
	}
	return b.postPoll(nil, cq, wcs, spinsOf(spins), nil)
}

// postPoll posts the batch and polls cq for by: see [CQ.poll]. times may be nil.
func (b *Batch) postPoll(by *router, cq *CQ, wcs []WC, spins uint32, times *cgo.Times) (n, got int, err error) {
	if err := b.enter(); err != nil || b.n == 0 {
		return 0, 0, b.ended(err)
	}
	// The queue in which the sends complete is not closed before the queue pair is.
	enters := by == nil && cq != b.qp.sendCQ
	if enters && !cq.life.Enter() {
		b.exit()
		return 0, 0, b.ended(opError("poll", cq.life.Label, ErrClosed))
	}
	now, stashed := cq.router.Load(), cq.stash.Load() != nil
	if now == by && !stashed {
		n, got, err = cgo.PostPoll(b.qp.qp, b.qp.path, b.chain, b.n, cq.cq, cq.path, rawWCs(wcs), spins, times)
	}
	if enters {
		cq.life.Exit()
	}
	b.exit()
	switch {
	case now != by:
		return 0, 0, b.ended(cq.taken(by, now))
	case stashed:
		n, err = b.Post()
		return n, cq.unstash(wcs), err
	}
	if cq.kept.Load() {
		got = cq.sift(wcs[:got])
	}
	switch {
	case err != nil && n < b.n:
		err = b.postError(err)
	case err != nil, got == 0 && cq.overrun.Load():
		err = cq.pollError(err)
	case anyFailed(wcs[:got]):
		cq.failed(wcs[:got])
	}
	return n, got, b.ended(err)
}

// enter holds the queue pair and what requests name open for a post.
func (b *Batch) enter() error {
	if b.err != nil || b.n == 0 {
		return b.err
	}
	q := b.qp
	if r := q.requester.Load(); r != nil && r.batch != b {
		return q.requested("post send to")
	} else if r == nil && (b.by != nil || q.sendCQ.routed()) {
		if err := b.by.mayPost("post send that completes in", q.sendCQ); err != nil {
			return err
		}
	}
	if q.typ.unconnected() {
		if err := b.address(); err != nil {
			return err
		}
	}
	if s := q.State(); s < StateRTS {
		return opError("post send to", q.life.Label, ErrState, "it is in ", s)
	}
	if !b.owned && !q.life.Enter() {
		return opError("post send to", q.life.Label, ErrClosed)
	}
	for i, l := range b.named {
		if !l.Enter() {
			for _, held := range b.named[:i] {
				held.Exit()
			}
			if !b.owned {
				q.life.Exit()
			}
			return opError("post request with", l.Label, ErrClosed)
		}
	}
	return nil
}

// name makes Post hold an object open that a request points to. Requests in a row
// often name the same one.
func (b *Batch) name(l *life.Life) {
	if !b.kept && (len(b.named) == 0 || b.named[len(b.named)-1] != l) {
		b.named = append(b.named, l)
	}
}

func (b *Batch) exit() {
	for _, l := range b.named {
		l.Exit()
	}
	if !b.owned {
		b.qp.life.Exit()
	}
}

func (b *Batch) ended(err error) error {
	b.n = 0
	if b.err != nil {
		b.err = nil
	}
	if len(b.named) > 0 {
		clear(b.named)
		b.named = b.named[:0]
	}
	b.dests = b.dests[:0]
	return err
}

func (b *Batch) postError(err error) error {
	const op = "post send to"
	if isErrno(err, syscall.EOPNOTSUPP) && b.qp.path != cgo.PostPlain {
		return opError(op, b.qp.life.Label, unsupported(err), b.unsupportedBy())
	}
	return b.qp.postError(op, err)
}

func (q *QP) postError(op string, err error) error {
	switch {
	case isErrno(err, syscall.ENOMEM), isErrno(err, syscall.EAGAIN), isErrno(err, syscall.ENOSPC):
		return opError(op, q.life.Label, class(ErrQueueFull, err))
	case isErrno(err, syscall.EOPNOTSUPP):
		return opError(op, q.life.Label, unsupported(err), "by the provider")
	case isErrno(err, syscall.EINVAL):
		return opError(op, q.life.Label, class(ErrAttributes, err), "the provider refuses opcode, length or flags on ", q.typ, " in ", q.State())
	}
	return opError(op, q.life.Label, err)
}
