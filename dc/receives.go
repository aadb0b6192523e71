package dc

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// Received is a SEND or a WRITE with immediate that arrived at a target.
type Received struct {
	ID      uint64 // of the receive
	Session uint64 // under which it came; every session has its own number; 0 with hardware
	// ReplyTo is where the sender's program can be reached, if it says so
	// ([InitiatorConfig.ReplyTo]): resolve it with an initiator. nil otherwise, and
	// with hardware. It must not be changed.
	ReplyTo *Address
	Len     int // bytes
	Imm     uint32
	HasImm  bool
	// Err is why the receive failed; its buffer is the caller's again.
	Err error
}

// receives finds the session of each receive. The queue pair number
// identifies it: a responder context serves the next session only after collect.
type receives struct {
	cq    *verbs.CQ
	watch watch // a completion that a goroutine holds must be told its session before that ends

	mu       sync.Mutex
	sessions map[uint32]origin // by queue pair number
	backlog  []Received        // of sessions that are over
	wcs      [32]verbs.WC
	waiting  [32]verbs.WC // of the goroutine in take
	turn     chan struct{}
	closed   bool
}

// origin is the session that a queue pair serves.
type origin struct {
	session uint64
	replyTo *Address
}

func (b *receives) init(cq *verbs.CQ) {
	b.cq = cq
	b.watch.init(cq, &b.mu)
	b.sessions = make(map[uint32]origin)
	b.turn = make(chan struct{}, 1)
}

// begin begins a session.
func (b *receives) begin(qpn uint32, o origin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[qpn] = o
}

// gather keeps aside what is in the completion queue.
func (b *receives) gather() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gatherLocked()
}

// collect ends a session, when nothing more can come: what it left in the completion
// queue is kept aside.
func (b *receives) collect(qpn uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gatherLocked()
	delete(b.sessions, qpn)
}

func (b *receives) gatherLocked() {
	b.watch.exclude()
	defer b.watch.admit()
	for {
		n, err := b.cq.Poll(b.wcs[:])
		if n == 0 || err != nil {
			break
		}
		for i := range b.wcs[:n] {
			b.backlog = append(b.backlog, b.received(&b.wcs[i]))
		}
	}
}

func (b *receives) received(w *verbs.WC) Received {
	o := b.sessions[w.QPNum()]
	r := Received{ID: w.ID(), Session: o.session, ReplyTo: o.replyTo, Err: w.Err()}
	if r.Err == nil {
		r.Len = w.Len()
		r.Imm, r.HasImm = w.Imm()
	}
	return r
}

func (b *receives) poll(rs []Received) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, opError("poll", "target", ErrClosed)
	}
	if n := copy(rs, b.backlog); n > 0 {
		b.backlog = append(b.backlog[:0], b.backlog[n:]...)
		return n, nil
	}
	n, err := b.cq.Poll(b.wcs[:min(len(rs), len(b.wcs))])
	for i := range n {
		rs[i] = b.received(&b.wcs[i])
	}
	return n, err
}

func (b *receives) take(ctx context.Context, rs []Received) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, opError("wait for", "target", err)
	}
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, opError("wait for", "target", ctx.Err())
	}
	defer func() { <-b.turn }()
	for len(rs) > 0 {
		if n, err := b.poll(rs); n > 0 || err != nil {
			return n, err
		}
		if n, err := b.waitOnce(ctx, rs); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// waitOnce may return 0 and no error: then look again.
func (b *receives) waitOnce(ctx context.Context, rs []Received) (int, error) {
	b.mu.Lock()
	inner := b.watch.enter(ctx)
	if b.closed || len(b.backlog) > 0 {
		b.watch.leave()
		b.mu.Unlock()
		return 0, nil
	}
	b.mu.Unlock()

	n, err := b.watch.wait(ctx, inner, b.waiting[:min(len(rs), len(b.waiting))])

	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range n {
		rs[i] = b.received(&b.waiting[i])
	}
	b.watch.leave()
	return n, err
}

func (b *receives) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.watch.wake()
}
