package pacer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// Batch collects requests, as [verbs.Batch] does. A batch is for one goroutine at a time.
type Batch struct {
	q     *QP
	works []work
	n     int
	err   error // that Post refuses the batch with
	// Class of the requests that are added next.
	Class int
}

// NewBatch makes a batch of up to n requests.
func (q *QP) NewBatch(n int) (*Batch, error) {
	if most := q.qp.MaxSendWR(); n <= 0 || n > most {
		return nil, opError("make batch for", q.name, fmt.Errorf("%w: %d work requests; the queue holds %d", verbs.ErrAttributes, n, most))
	}
	return &Batch{q: q, works: make([]work, n), Class: q.class}, nil
}

// Len returns the number of requests added since the last Post or Reset.
func (b *Batch) Len() int { return b.n }

// Reset drops what was added.
func (b *Batch) Reset() { b.n, b.err = 0, nil }

// Add adds a request. Its lists are copied. Post reports what is wrong with one of the requests,
// and then posts none of the batch.
func (b *Batch) Add(r verbs.WR) {
	switch {
	case b.err != nil:
		return
	case b.n == len(b.works):
		b.err = opError("add to batch of", b.q.name, fmt.Errorf("%w: it holds %d", verbs.ErrBatchFull, len(b.works)))
		return
	}
	if b.err = b.q.batch.Check(r); b.err != nil {
		return
	}
	w := &b.works[b.n]
	b.n++
	w.set(&r)
	w.length, w.class = length(&r), b.Class
}

// Post gives the requests to the pacer and empties the batch. It never waits for
// credit: what has none is held, and posted when it has. Inline data is copied before it
// returns. On an error the first n requests were taken, and will complete.
// [verbs.ErrQueueFull] means that completions must be polled first: as many requests may
// be held or under way as the send queue of the queue pair holds.
func (b *Batch) Post() (n int, err error) {
	q, p := b.q, b.q.p
	defer b.Reset()
	if b.err != nil {
		return 0, b.err
	}
	p.mu.Lock()
	now := p.now()
	n, err = b.give(0, now)
	p.pump(now)
	p.release()
	return n, opError("post to", q.name, err)
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
	defer b.Reset()
	if b.err != nil {
		return 0, b.err
	}
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

// submit makes a command of a request. If it may go at once, it is added to the batch that is
// posted next, and the caller must call flush.
func (q *QP) submit(w *work, c *call, now time.Duration) (shaper.Request, error) {
	p := q.p
	at, sub, granted, err := p.s.Admit(q.flow, shaper.Command{Kind: w.kind(), Length: w.length, Class: w.class, Fence: w.Flags&verbs.Fence != 0}, now)
	if err != nil {
		return at, err
	}
	r := p.request(at)
	if granted && !q.cfg.Reissue { // it is posted once, and from w
		r.ID, r.Op, r.length = w.ID, w.Op, w.length
	} else {
		r.copyFrom(w)
		if !granted {
			r.keep()
		}
	}
	r.qp, r.call, r.sub, r.had, r.failed = q, c, sub, false, false
	r.place = q.enter(at, c != nil || w.Flags&verbs.Signaled != 0 || q.signalsAll)
	if granted {
		q.add(sub, w, w.Flags, 0, w.length)
	}
	return at, nil
}
