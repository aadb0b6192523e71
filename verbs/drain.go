package verbs

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cgo"
)

// drainID marks the two requests by which Drain knows the ends of the queues.
// No other request of the queue pair may have it.
const drainID = 0xd7a1_d7a1_d7a1_d7a1

// ErrDrain: the device did not flush a queue pair in time.
var ErrDrain = errors.New("queue pair not drained")

// drainTimeout bounds a drain with a context that has no deadline. A device flushes
// within microseconds; a failed device never does.
const drainTimeout = 5 * time.Second

// Drain moves the queue pair to [StateError] and waits until everything in it
// has completed, most of it as [WCFlushed]. Afterwards the device touches none
// of the memory that its requests named, and [QP.Close] loses no completion.
//
// Drain polls the completion queues of the queue pair; no other goroutine may poll or
// wait on them meanwhile. It passes on each completion that it finds to each,
// those of other queue pairs included; nil drops them, and is refused with
// [ErrInUse] if other queue pairs complete there. It cannot hang: without a
// deadline in ctx it gives up after 5 s with [ErrDrain].
//
// Receives of a shared receive queue stay in it. Receives of an [SRD] queue pair get no
// completion, and end with Close. [ErrUnsupported] means that the provider leaves no way
// to drain. That is so for a [DCT], where Close ends what is under way, and for providers
// that take no requests in the error state (erdma): there the queue pair is then in that
// state, and the program must count completions itself.
func (q *QP) Drain(ctx context.Context, each func(*WC)) error {
	if q.typ == DCT {
		return opError("drain", q.life.Label, ErrUnsupported, "a DCT has no error state; Close ends what is under way")
	}
	if q.requester.Load() != nil {
		return q.requested("drain")
	}
	if q.receiver.Load() != nil {
		return opError("drain", q.life.Label, ErrInUse, "a Receiver has its receives")
	}
	if each == nil {
		if q.sendCQ.shared(q) || q.recvCQ.shared(q) {
			return opError("drain", q.life.Label, ErrInUse, "other queue pairs complete in its queues: their completions must go somewhere")
		}
		each = func(*WC) {}
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, drainTimeout, ErrDrain)
		defer cancel()
	}
	if err := ctx.Err(); err != nil {
		return opError("drain", q.life.Label, err)
	}
	if q.State() == StateReset {
		return nil // nothing can be in it
	}
	if err := q.ToError(); err != nil {
		return err
	}
	d := drainer{q: q, each: each, recv: q.cap.MaxRecvWR == 0}
	switch q.typ {
	case SRD: // EFA takes no marks, and does not flush receives
		d.count, d.recv = true, true
	case UD, DCI:
		// Flushed or not, a datagram has an address, and providers look at it.
		ah, err := q.pd.CreateAH(AHAttr{GID: q.gid.GID, SGIDIndex: q.gid.Index, Port: q.gid.Port})
		if err != nil {
			return err
		}
		d.ah = ah
		defer ah.Close()
	}
	return d.run(ctx)
}

// shared reports whether queue pairs other than q complete in the queue.
func (c *CQ) shared(q *QP) bool {
	own := 0
	for _, cq := range []*CQ{q.sendCQ, q.recvCQ} {
		if cq == c {
			own++
		}
	}
	return c.life.Children("qp") > own
}

// drainer waits for the marks at the ends of both queues.
type drainer struct {
	q            *QP
	each         func(*WC)
	send, recv   bool // the mark has come, or there is no such queue
	sent, posted bool // the mark is posted
	count        bool // there is no mark for sends: they are counted
	ah           *AH  // of the mark, if it needs one
	wcs          [16]WC
}

func (d *drainer) run(ctx context.Context) error {
	const first, longest = 50 * time.Microsecond, 10 * time.Millisecond
	pause := first
	for {
		d.send = d.send || d.count && cgo.Outstanding(d.q.path) == 0
		if d.send && d.recv {
			return nil
		}
		if err := d.mark(); err != nil {
			return err
		}
		if pause == first {
			// rxe looks at what is posted to a queue pair in error only when
			// it is told of the error again.
			if err := d.q.ToError(); err != nil {
				return err
			}
		}
		n, err := d.poll(d.q.sendCQ)
		if err == nil && d.q.recvCQ != d.q.sendCQ {
			var m int
			m, err = d.poll(d.q.recvCQ)
			n += m
		}
		if err != nil {
			return err
		}
		if n > 0 {
			pause = first
			continue
		}
		select {
		case <-ctx.Done():
			return opError("drain", d.q.life.Label, errors.Join(ErrDrain, context.Cause(ctx)))
		case <-time.After(pause):
			if pause *= 2; pause > longest {
				pause = first
			}
		}
	}
}

// mark posts the marks; a full queue gets its own once completions were taken.
func (d *drainer) mark() error {
	if !d.send && !d.sent && !d.count {
		b, err := d.q.NewBatch(1)
		if err != nil {
			return err
		}
		d.addMark(b)
		if d.sent, err = d.marked(b.Post()); err != nil {
			return err
		}
	}
	if !d.recv && !d.posted {
		b, err := d.q.NewRecvBatch(1)
		if err != nil {
			return err
		}
		b.Recv(drainID)
		if d.posted, err = d.marked(b.Post()); err != nil {
			return err
		}
	}
	return nil
}

func (d *drainer) marked(n int, err error) (bool, error) {
	switch {
	case errors.Is(err, ErrQueueFull):
		return false, nil
	case isErrno(err, syscall.EIO), isErrno(err, syscall.EINVAL):
		return false, opError("drain", d.q.life.Label, class(ErrUnsupported, err), "the provider takes no requests in the error state, by which the end of the queue would show")
	}
	return n == 1 && err == nil, err
}

// addMark adds a request that queue pairs of the type have; it is flushed before
// its destination is used.
func (d *drainer) addMark(b *Batch) {
	switch {
	case d.q.typ == RawPacket:
		// mlx5 looks for an Ethernet header before the device flushes the frame.
		b.Send(drainID, Signaled, SGE{Addr: b.chain.InlineAt, Length: shortestFrame})
	case d.ah == nil:
		b.Send(drainID, Signaled)
	case d.q.typ == UD:
		b.SendTo(drainID, Signaled, Destination{AH: d.ah, QPN: d.q.num, QKey: d.q.qkey.Load()})
	default:
		b.SetTarget(Target{AH: d.ah, QPN: d.q.num, QKey: d.q.qkey.Load()})
		b.Send(drainID, Signaled)
	}
}

func (d *drainer) poll(cq *CQ) (int, error) {
	n, err := cq.Poll(d.wcs[:])
	if err != nil {
		return 0, err
	}
	for i := range d.wcs[:n] {
		wc := &d.wcs[i]
		if wc.ID() != drainID || wc.QPNum() != d.q.num {
			d.each(wc)
			continue
		}
		// A flushed completion does not have its opcode. The send's mark is
		// the first on the send queue; with one queue for both, each mark
		// that was posted comes once.
		switch {
		case cq == d.q.sendCQ && cq != d.q.recvCQ:
			d.send = true
		case cq == d.q.recvCQ && cq != d.q.sendCQ:
			d.recv = true
		case d.sent && !d.send:
			d.send = true
		default:
			d.recv = true
		}
	}
	return n, nil
}
