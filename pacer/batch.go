package pacer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// Batch collects requests, as [verbs.Batch] does, and its calls are those. A batch
// is for one goroutine at a time.
type Batch struct {
	q     *QP
	check *verbs.Batch // finds out what is wrong with a request
	works []work
	n     int
	// Class of the requests that are added next.
	Class int
}

// NewBatch makes a batch of up to n requests.
func (q *QP) NewBatch(n int) (*Batch, error) {
	check, err := q.cq.d.NewBatch(q.qp, n)
	if err != nil {
		return nil, err
	}
	return &Batch{q: q, check: check, works: make([]work, n), Class: q.class}, nil
}

// Len returns the number of requests added since the last Post or Reset.
func (b *Batch) Len() int { return b.n }

// Cap returns the number of requests that the batch can hold.
func (b *Batch) Cap() int { return len(b.works) }

// Err returns the error that [Batch.Post] would refuse the batch with, as far as it is known
// before.
func (b *Batch) Err() error { return b.check.Err() }

// Reset drops what was added.
func (b *Batch) Reset() {
	b.check.Reset()
	b.n = 0
}

func (b *Batch) next(o op, id uint64, flags verbs.SendFlags, at verbs.Remote, sges []verbs.SGE) *work {
	if b.n == len(b.works) {
		b.check.Send(0, 0) // is too much for it too
		return &work{}
	}
	w := &b.works[b.n]
	w.class = b.Class
	b.n++
	n := 0
	for _, s := range sges {
		n += int(s.Length)
	}
	w.id, w.op, w.flags, w.at, w.length = id, o, flags, at, n
	w.sges, w.data, w.other = append(w.sges[:0], sges...), w.data[:0], nil
	return w
}

// Read adds a READ of a peer's memory.
func (b *Batch) Read(id uint64, flags verbs.SendFlags, from verbs.Remote, sges ...verbs.SGE) {
	b.check.Read(0, flags, from, sges...)
	b.next(opRead, id, flags, from, sges)
}

// Write adds a WRITE to a peer's memory.
func (b *Batch) Write(id uint64, flags verbs.SendFlags, to verbs.Remote, sges ...verbs.SGE) {
	b.check.Write(0, flags, to, sges...)
	b.next(opWrite, id, flags, to, sges)
}

// WriteImm adds a WRITE that consumes a receive.
func (b *Batch) WriteImm(id uint64, flags verbs.SendFlags, imm uint32, to verbs.Remote, sges ...verbs.SGE) {
	b.check.WriteImm(0, flags, imm, to, sges...)
	b.next(opWriteImm, id, flags, to, sges).a = uint64(imm)
}

// WriteInline adds a WRITE of bytes that are copied now.
func (b *Batch) WriteInline(id uint64, flags verbs.SendFlags, to verbs.Remote, data []byte) {
	b.check.WriteInline(0, flags, to, data)
	b.next(opWriteInline, id, flags, to, nil).inline(data)
}

// WriteImmInline adds a WRITE of bytes that are copied now, which consumes a receive.
func (b *Batch) WriteImmInline(id uint64, flags verbs.SendFlags, imm uint32, to verbs.Remote, data []byte) {
	b.check.WriteImmInline(0, flags, imm, to, data)
	w := b.next(opWriteImmInline, id, flags, to, nil)
	w.a = uint64(imm)
	w.inline(data)
}

func (w *work) inline(data []byte) { w.data, w.length = append(w.data, data...), len(data) }

// Send adds a SEND.
func (b *Batch) Send(id uint64, flags verbs.SendFlags, sges ...verbs.SGE) {
	b.check.Send(0, flags, sges...)
	b.next(opSend, id, flags, verbs.Remote{}, sges)
}

// SendImm adds a SEND with an immediate.
func (b *Batch) SendImm(id uint64, flags verbs.SendFlags, imm uint32, sges ...verbs.SGE) {
	b.check.SendImm(0, flags, imm, sges...)
	b.next(opSendImm, id, flags, verbs.Remote{}, sges).a = uint64(imm)
}

// SendInline adds a SEND of bytes that are copied now.
func (b *Batch) SendInline(id uint64, flags verbs.SendFlags, data []byte) {
	b.check.SendInline(0, flags, data)
	b.next(opSendInline, id, flags, verbs.Remote{}, nil).inline(data)
}

// SendImmInline adds a SEND of bytes that are copied now, with an immediate.
func (b *Batch) SendImmInline(id uint64, flags verbs.SendFlags, imm uint32, data []byte) {
	b.check.SendImmInline(0, flags, imm, data)
	w := b.next(opSendImmInline, id, flags, verbs.Remote{}, nil)
	w.a = uint64(imm)
	w.inline(data)
}

// FetchAdd adds a FETCH_ADD.
func (b *Batch) FetchAdd(id uint64, flags verbs.SendFlags, at verbs.Remote, add uint64, result verbs.SGE) {
	b.check.FetchAdd(0, flags, at, add, result)
	w := b.next(opFetchAdd, id, flags, at, nil)
	w.sges, w.a, w.length = append(w.sges, result), add, 8
}

// CmpSwap adds a CMP_SWAP.
func (b *Batch) CmpSwap(id uint64, flags verbs.SendFlags, at verbs.Remote, compare, swap uint64, result verbs.SGE) {
	b.check.CmpSwap(0, flags, at, compare, swap, result)
	w := b.next(opCmpSwap, id, flags, at, nil)
	w.sges, w.a, w.b, w.length = append(w.sges, result), compare, swap, 8
}

// AddFunc adds a request of another kind. add is called twice and adds the request to a batch of
// package verbs with the ID and the flags that it is given: now, to validate it, and when it is
// posted, with the pacer locked, where add must call no method of the pacer. n is the number of
// bytes that the request sends.
func (b *Batch) AddFunc(id uint64, flags verbs.SendFlags, n int, add func(b *verbs.Batch, id uint64, flags verbs.SendFlags)) {
	add(b.check, 0, flags)
	w := b.next(opOther, id, flags, verbs.Remote{}, nil)
	w.length, w.other = n, add
}

// Post gives the requests to the pacer and empties the batch. It never waits for
// credit: what has none is held, and posted when it has. Inline data is copied before it
// returns. On an error the first n requests were taken, and will complete.
// [verbs.ErrQueueFull] means that completions must be polled first: as many requests may
// be held or under way as the send queue of the queue pair holds.
func (b *Batch) Post() (n int, err error) {
	q, p := b.q, b.q.p
	if err := b.right(); err != nil {
		return 0, err
	}
	p.mu.Lock()
	now := p.now()
	n, err = b.give(0, now)
	p.pump(now)
	p.release()
	b.Reset()
	return n, opError("post to", q.name, err)
}

func (b *Batch) right() error {
	err := b.check.Err()
	if err == nil && b.check.Len() != b.n {
		err = opError("post to", b.q.name, fmt.Errorf("%w: what Other was given adds %d requests too many", verbs.ErrAttributes, b.check.Len()-b.n))
	}
	b.check.Reset()
	if err != nil {
		b.n = 0
	}
	return err
}

// give submits the requests from first on, as many as there is room for, and posts the ones
// that may go at once.
func (b *Batch) give(first int, now time.Duration) (n int, err error) {
	q := b.q
	if q.closed {
		return 0, ErrClosed
	}
	for first+n < b.n && err == nil {
		if err = q.takes(); err == nil {
			_, err = q.submit(&b.works[first+n], nil, now)
		}
		if err == nil {
			n++
		}
	}
	q.flush()
	return n, err
}

// PostContext is Post, but waits while the queue is full. Another goroutine has to take
// completions meanwhile.
func (b *Batch) PostContext(ctx context.Context) (n int, err error) {
	q, p := b.q, b.q.p
	if err := b.right(); err != nil {
		return 0, err
	}
	defer func() { b.n = 0 }()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.unlock()
	for n < b.n {
		more, err := b.give(n, p.now())
		n += more
		q.share()
		if err != nil && !errors.Is(err, verbs.ErrQueueFull) {
			return n, opError("post to", q.name, err)
		}
		if n == b.n {
			break
		}
		if err := q.awaitRoom(ctx); err != nil {
			return n, err
		}
	}
	return n, nil
}

// PostPoll is Post followed by [CQ.PollSpin].
func (b *Batch) PostPoll(wcs []verbs.WC, spins int) (n, got int, err error) {
	if n, err = b.Post(); err != nil {
		return n, 0, err
	}
	got, err = b.q.cq.PollSpin(wcs, spins)
	return n, got, err
}

// submit makes a command of a request. If it may go at once, it is added to the batch that is
// posted next, and the caller must call flush.
func (q *QP) submit(w *work, c *call, now time.Duration) (shaper.Request, error) {
	p := q.p
	at, sub, granted, err := p.s.Admit(q.flow, shaper.Command{Kind: w.op.kind(), Length: w.length, Class: w.class, Fence: w.flags&verbs.Fence != 0}, now)
	if err != nil {
		return at, err
	}
	r := p.request(at)
	if granted && !q.cfg.Reissue { // it is posted once, and from w
		r.id, r.op, r.length = w.id, w.op, w.length
	} else {
		r.copyFrom(w)
		if !granted {
			r.keep()
		}
	}
	r.qp, r.call, r.had, r.failed = q, c, false, false
	r.place = q.enter(at, c != nil || w.flags&verbs.Signaled != 0 || q.qp.SignalsAll())
	if granted {
		q.add(sub, w, w.flags, 0, w.length)
	}
	return at, nil
}
