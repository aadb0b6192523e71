package lockoffload

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// Lock is a lock that this client holds. Its methods are safe for concurrent
// use.
type Lock struct {
	c     *Client
	s     *session
	g     machine.Grant
	share *bit
	turn  *turn // that the agent gave, or nil
	// What Unlock needs is there from the time of the lock: of an exclusive one here,
	// of a shared one in share.
	j *job

	busy   chan struct{} // full while a call uses the fields below, see enter
	body   []byte        // old's
	old    memory.Current
	loaded bool // old is what the slot has
	staged bool // the next copy is in j's memory
	done   bool
	err    error
}

// hold registers a lock for Close. A lock that comes after Close has collected them is
// given up.
func (c *Client) hold(h *Lock, res Result) (*Lock, Result, error) {
	h.busy = make(chan struct{}, 1)
	c.mu.Lock()
	if h.j != nil {
		h.j.count()
	}
	late := c.abandoned
	if !late {
		c.held[h] = struct{}{}
	}
	c.mu.Unlock()
	if late {
		h.abandon()
		return nil, res, ErrClosed
	}
	return h, res, nil
}

// enter waits until no other call uses the lock's data: calls follow each other, and one
// that was given up may still have a WRITE under way. The caller must call leave.
func (h *Lock) enter(ctx context.Context) error {
	select {
	case h.busy <- struct{}{}:
		return nil
	default:
	}
	select {
	case h.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin is enter for calls that must do nothing under a context that has ended.
func (h *Lock) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return h.enter(ctx)
}

func (h *Lock) leave() { <-h.busy }

// Slot returns the slot that is locked.
func (h *Lock) Slot() int { return h.g.Slot }

// Token returns the fencing token that [LockOptions.Token] asked for: higher than
// those of all earlier holders. It is for resources outside the region, which
// refuse tokens lower than the highest that they have seen.
func (h *Lock) Token() uint64 { return h.g.Token }

// Lost returns a channel that is closed when the lock can no longer be relied on, because
// the session ended or its lease ran out: before others have the lock, unless the target
// evicts the client ([Session.Evict]). The target keeps late WRITEs of a lost lock from
// being executed before it gives the lock to others.
func (h *Lock) Lost() <-chan struct{} { return h.s.lost }

// Read reads a record under the lock, with what this holder has written. The first
// Read or Write of a lock takes a round trip, later ones none: no other client changes
// the slot meanwhile. A lock that the agent handed on has read a small slot already.
func (h *Lock) Read(ctx context.Context, record int, dst []byte) ([]byte, Result, error) {
	if err := h.begin(ctx); err != nil {
		return nil, Result{Protocol: ProtocolTwoStep}, opError("read", h.g.Slot, err)
	}
	defer h.leave()
	r, err := h.record(ctx, record)
	if err == nil && len(r.Data) > len(dst) {
		err = fmt.Errorf("%w: %d bytes do not fit in %d", ErrConfig, len(r.Data), len(dst))
	}
	if err != nil {
		return nil, Result{Protocol: ProtocolTwoStep}, opError("read", h.g.Slot, err)
	}
	return dst[:copy(dst, r.Data)], Result{Protocol: ProtocolTwoStep, Version: r.Version}, nil
}

// Write changes a record under an exclusive lock. The change, with all others of this
// holder, is made by Unlock or [Lock.Commit]: others see all of it, or, if the lock is
// lost before, nothing. data is copied.
func (h *Lock) Write(ctx context.Context, record int, data []byte) (Result, error) {
	res := Result{Protocol: ProtocolTwoStep}
	if err := h.begin(ctx); err != nil {
		return res, opError("write", h.g.Slot, err)
	}
	defer h.leave()
	if h.g.Shared || len(data) > h.c.l.Size {
		return res, opError("write", h.g.Slot, ErrConfig)
	}
	if _, err := h.record(ctx, record); err != nil {
		return res, opError("write", h.g.Slot, err)
	}
	next := h.next()
	if !h.staged {
		h.c.l.Stage(next, &h.old)
		h.staged = true
	}
	old, _ := h.c.l.Record(&h.old, record) // looked up before
	res.Version = old.Version + 1
	h.c.l.Put(next, record, res.Version, data)
	return res, nil
}

// next returns the memory in which the next copy is made.
func (h *Lock) next() []byte {
	return h.j.mr.Bytes()[h.c.l.WriteAt():][:h.c.l.CopyStride()]
}

// record returns a record as the holder sees it.
func (h *Lock) record(ctx context.Context, n int) (memory.Content, error) {
	if err := h.c.named(ctx, h.g.Slot); err != nil {
		return memory.Content{}, err
	}
	if n < 0 || n >= h.c.l.Records {
		return memory.Content{}, ErrConfig
	}
	if h.done {
		return memory.Content{}, ErrClosed
	}
	if err := h.s.allowed(); err != nil {
		return memory.Content{}, err
	}
	if !h.loaded {
		if err := h.load(ctx); err != nil {
			return memory.Content{}, err
		}
	}
	cur := h.old
	if h.staged {
		cur = h.c.l.Staged(h.next(), h.old.Version+1)
	}
	return h.c.l.Record(&cur, n)
}

func (h *Lock) load(ctx context.Context) error {
	m := &machine.Once{}
	j, err := h.c.start(h.s, m, h.g.Slot)
	if err != nil {
		return err
	}
	defer j.drop()
	m.Load(h.g.Slot)
	if _, err := j.drive(ctx); err != nil {
		return err
	}
	cur, err := m.Decode()
	if err == nil {
		h.keep(cur)
	}
	return err
}

// keep copies the slot's data.
func (h *Lock) keep(cur memory.Current) {
	h.body = append(h.body[:0], cur.Body...)
	h.old, h.loaded = cur, true
	h.old.Body = h.body
}

// Commit makes the changes so far, at one moment, and keeps the lock. Others may see
// them from then on, and they stay if the client dies. A context that ends while they
// are under way does not stop them: the next call waits until they are made. After
// [ErrOutcomeUnknown] they were made or not, or will be.
func (h *Lock) Commit(ctx context.Context) error {
	err := h.begin(ctx)
	if err == nil {
		err = h.commit(ctx)
	}
	if err != nil {
		return opError("commit", h.g.Slot, err)
	}
	return nil
}

// commit writes the staged copy. It calls leave when nothing is under way any more,
// perhaps after it has returned.
func (h *Lock) commit(ctx context.Context) error {
	var err error
	switch {
	case h.done:
		err = ErrClosed
	case !h.staged:
	default:
		if err = ctx.Err(); err == nil {
			if err = h.postCommit(ctx); err == nil {
				return h.awaitCommit(ctx)
			}
		}
	}
	h.leave()
	if errors.Is(err, ErrBroken) && !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

// postCommit posts the WRITE of commit, unless the lease is over by then.
func (h *Lock) postCommit(ctx context.Context) error {
	m := &machine.Once{}
	h.j.prepare(m)
	m.Commit(h.g.Slot, &h.old)
	for {
		if until := h.s.until.Load(); until != longOver {
			if err := h.j.post(ctx, until); err != errLate {
				return err
			}
		}
		if err := h.s.allowed(); err != nil { // else heartbeats have extended the lease meanwhile
			return err
		}
	}
}

// awaitCommit waits for the WRITE of commit, and calls leave when it is over.
func (h *Lock) awaitCommit(ctx context.Context) error {
	line, f := h.s.line, &h.j.flight
	err := line.await(ctx, f)
	if err == nil || errors.Is(err, ErrBroken) {
		h.committed(err)
		h.leave()
	} else {
		go func() {
			h.committed(line.await(context.Background(), f))
			h.leave()
		}()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return nil
}

// committed makes the staged copy the current one after its WRITE, unless that failed.
func (h *Lock) committed(err error) {
	if err != nil {
		return
	}
	now := h.c.l.Staged(h.next(), h.old.Version+1)
	h.body = append(h.body[:0], now.Body...)
	h.old = memory.Current{Which: 1 - h.old.Which, Version: now.Version, Body: h.body, Whole: true}
	h.staged = false
}

// Unlock makes the changes, gives the lock back and waits for the reply. [ErrLost]
// says that the lock was no longer held: without [ErrOutcomeUnknown] nothing was changed.
// Further calls return the same. After an error of the context both are still under
// way, see [Client.Flush].
func (h *Lock) Unlock(ctx context.Context) error {
	if err := h.enter(ctx); err != nil {
		go func() { // behind what is under way
			_ = h.enter(context.Background())
			defer h.leave()
			// A later Unlock returns the outcome.
			if p, err := h.unlock(context.Background()); p != nil && p.await(context.Background()) == nil && err == nil {
				h.err = p.err
			}
		}()
		return opError("unlock", h.g.Slot, err)
	}
	defer h.leave()
	p, err := h.unlock(ctx)
	if p != nil {
		if werr := p.Wait(ctx); err == nil {
			h.err = werr
		}
	}
	return h.err
}

// unlock begins to give the lock back, once.
func (h *Lock) unlock(ctx context.Context) (*Commit, error) {
	if h.done {
		return nil, h.err
	}
	p, err := h.release(ctx)
	h.done, h.err = true, err
	h.endTurn()
	return p, err
}

// endTurn has the agent give the next client its turn. Call it when the unlock command has
// been posted.
func (h *Lock) endTurn() {
	if h.turn != nil {
		h.turn.end()
	}
}

// release posts the WRITE and the unlock command.
func (h *Lock) release(ctx context.Context) (*Commit, error) {
	h.c.mu.Lock()
	delete(h.c.held, h)
	h.c.mu.Unlock()
	j := h.j
	if h.share != nil {
		if !h.c.dropShare(h.share) {
			return nil, nil // others of this client still hold it
		}
		j = h.share.j
	}
	defer j.drop()
	m := &machine.Releaser{Grant: h.g, Owner: h.s.tags.Owner}
	j.prepare(m)
	var p *Commit
	var err error
	if h.staged {
		m.Old = &h.old
		_, _ = m.Step()
		p, err = j.postLeased(ctx, m)
	} else {
		p, err = j.drive(ctx)
	}
	if err != nil {
		err = opError("unlock", h.g.Slot, err)
	}
	return p, err
}

// abandon ends a lock of a client that has closed: nothing is under way any more.
func (h *Lock) abandon() {
	_ = h.enter(context.Background())
	defer h.leave()
	if h.done {
		return
	}
	h.done, h.err = true, opError("unlock", h.g.Slot, fmt.Errorf("%w: %w", ErrLost, ErrClosed))
	h.endTurn()
	switch {
	case h.share == nil:
		h.j.drop()
	case h.c.dropShare(h.share):
		h.share.j.drop()
	}
}
