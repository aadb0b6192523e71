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
	Len     int    // bytes
	Imm     uint32
	HasImm  bool
	// Err is why the receive failed; its buffer is the caller's again.
	Err error
}

// inbox says of each receive to which session it belongs. A responder context
// serves the next session only after collect, so a queue pair number means one
// session at a time.
type inbox struct {
	cq   *verbs.CQ
	park parker

	mu       sync.Mutex
	sessions map[uint32]uint64
	backlog  []Received // of sessions that are over
	wcs      [32]verbs.WC
	waiting  [32]verbs.WC // of the one who waits
	turn     chan struct{}
	closed   bool

	// A completion that the waiting goroutine holds must be told its session
	// before that ends.
	changed    sync.Cond
	inside     bool // somebody waits, or holds one
	collecting int
}

func (b *inbox) init(cq *verbs.CQ) {
	b.cq, b.park.cq = cq, cq
	b.sessions = make(map[uint32]uint64)
	b.turn = make(chan struct{}, 1)
	b.changed.L = &b.mu
}

// tag begins a session.
func (b *inbox) tag(qpn uint32, session uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[qpn] = session
}

// collect ends one: what it left in the completion queue is kept aside.
func (b *inbox) collect(qpn uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collecting++
	for b.inside {
		b.park.wake()
		b.changed.Wait()
	}
	for {
		n, err := b.cq.Poll(b.wcs[:])
		if n == 0 || err != nil {
			break
		}
		for i := range b.wcs[:n] {
			b.backlog = append(b.backlog, b.received(&b.wcs[i]))
		}
	}
	delete(b.sessions, qpn)
	b.collecting--
	b.changed.Broadcast()
}

func (b *inbox) received(w *verbs.WC) Received {
	r := Received{ID: w.ID(), Session: b.sessions[w.QPNum()], Err: w.Err()}
	if r.Err == nil {
		r.Len = w.Len()
		r.Imm, r.HasImm = w.Imm()
	}
	return r
}

func (b *inbox) poll(rs []Received) (int, error) {
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

func (b *inbox) wait(ctx context.Context, rs []Received) (int, error) {
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

// waitOnce may answer nothing: then look again.
func (b *inbox) waitOnce(ctx context.Context, rs []Received) (int, error) {
	b.mu.Lock()
	for b.collecting > 0 {
		b.changed.Wait()
	}
	if b.closed || len(b.backlog) > 0 {
		b.mu.Unlock()
		return 0, nil
	}
	inner := b.park.begin(ctx)
	b.inside = true
	b.mu.Unlock()

	n, err := b.park.wait(ctx, inner, b.waiting[:min(len(rs), len(b.waiting))])

	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range n {
		rs[i] = b.received(&b.waiting[i])
	}
	b.inside = false
	b.changed.Broadcast()
	return n, err
}

func (b *inbox) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.park.wake()
}
