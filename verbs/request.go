package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"time"
)

// Read copies memory of the peer into local memory. It returns when the data are
// there, or an error.
func (r *Requester) Read(ctx context.Context, from Remote, into SGE) error {
	return r.one(ctx, opRead, from, into)
}

// Write copies local memory to memory of the peer. It returns when the peer's device has
// the data; the peer's program is not told.
func (r *Requester) Write(ctx context.Context, to Remote, from SGE) error {
	return r.one(ctx, opWrite, to, from)
}

// Send sends a message into the next receive that the peer has posted. It returns when
// the peer's device has the message. If the peer has no receive posted, the device tries
// again as often as the connection says ([ConnectConfig.RNRRetries]).
func (r *Requester) Send(ctx context.Context, data SGE) error {
	return r.one(ctx, opSend, Remote{}, data)
}

// FetchAdd adds to an 8-byte aligned word of the peer and returns its old value, in host
// byte order. After an error the addition may have happened, and after an [InFlightError] it
// may happen later.
func (r *Requester) FetchAdd(ctx context.Context, at Remote, add uint64) (old uint64, err error) {
	return r.atomic(ctx, opFetchAdd, at, add, 0)
}

// CmpSwap sets an 8-byte aligned word of the peer to swap if it equals compare, and
// returns the old value of the word, which is compare if the swap took place. After an
// error the swap may have taken place, and after an [InFlightError] it may do so later.
func (r *Requester) CmpSwap(ctx context.Context, at Remote, compare, swap uint64) (old uint64, err error) {
	return r.atomic(ctx, opCmpSwap, at, compare, swap)
}

// Do posts a list of requests, which the device executes in order, and returns when all of it
// was executed. Only the last request completes visibly, and the requests' numbers are not used.
// A list may have as many requests as the send queue holds ([QP.MaxSendWR]). After an error some
// of the list may have been executed.
func (r *Requester) Do(ctx context.Context, list ...WR) error {
	s, err := r.begin(ctx, list, r.router.cq.spin, false, nil)
	if s == nil {
		return err
	}
	_, err = r.await(ctx, s)
	return err
}

// Pending is a list under way. Its memory belongs to the device.
type Pending struct {
	r   *Requester
	s   *slot
	gen uint32
}

// Start is Do without the wait: the next list can follow at once. An error says
// that nothing of the list will be executed.
func (r *Requester) Start(ctx context.Context, list ...WR) (Pending, error) {
	s, err := r.begin(ctx, list, 0, true, nil)
	if err != nil {
		return Pending{}, err
	}
	return Pending{r, s, s.gen}, nil
}

// Wait waits until the list is over, and frees its place in the queue. It must be
// called exactly once; a second call is refused with [ErrState]. A context that has ended
// leaves a list under way as it is, with an [InFlightError].
func (p Pending) Wait(ctx context.Context) error {
	if p.r == nil || !p.s.open.CompareAndSwap(1+uint64(p.gen), 0) {
		return opError("wait for", "list", ErrState, "it was waited for already, or not started")
	}
	p.r.unwaited.Add(-1)
	_, err := p.r.await(ctx, p.s)
	return err
}

func (r *Requester) one(ctx context.Context, op uint32, at Remote, local SGE) error {
	s, err := r.postOne(ctx, op, at, local)
	if s == nil {
		return err
	}
	_, err = r.await(ctx, s)
	return err
}

func (r *Requester) postOne(ctx context.Context, op uint32, at Remote, local SGE) (*slot, error) {
	if err := r.take(ctx); err != nil {
		return nil, r.refuse(op, err)
	}
	defer r.leave()
	r.batch.next(0, op, 0, at, []SGE{local})
	s, _, err := r.post(ctx, op, r.router.cq.spin, false, nil)
	return s, err
}

// errNoResult is a completion that came too early. Soft-RoCE has such: a WRITE
// that comes twice, which happens where packets get lost, is acknowledged up to
// the last request that was executed, and the sender takes that for the reply to
// an atomic behind the WRITE.
var errNoResult = errors.New("the device completed an atomic without its result")

// makeResults makes sure that there is a place for results. Most requesters never need one, and it is
// a page of registered memory. posting must be held.
func (r *Requester) makeResults() error {
	if r.results != nil {
		return nil
	}
	if r.closed.Load() { // the memory would never be freed
		return opError("use requester of", r.qp.named(), ErrClosed)
	}
	mr, err := r.qp.pd.AllocMR(8*len(r.slots), MRConfig{})
	if err != nil {
		return err
	}
	r.results, r.result0 = mr, mr.SGE(0, 8)
	return nil
}

func (r *Requester) atomic(ctx context.Context, op uint32, at Remote, compareAdd, swap uint64) (uint64, error) {
	s, old, err := r.postAtomic(ctx, op, at, compareAdd, swap)
	if s == nil {
		return old, err
	}
	return r.await(ctx, s)
}

// found returns the old value of the word of an atomic that has succeeded, and 0 for other requests.
func (r *Requester) found(s *slot) (uint64, error) {
	if s.what != opFetchAdd && s.what != opCmpSwap {
		return 0, nil
	}
	old := binary.NativeEndian.Uint64(r.results.Bytes()[8*s.place:])
	if old == r.mark {
		return 0, r.refuse(s.what, errNoResult)
	}
	return old, nil
}

func (r *Requester) postAtomic(ctx context.Context, op uint32, at Remote, compareAdd, swap uint64) (*slot, uint64, error) {
	if err := r.take(ctx); err != nil {
		return nil, 0, r.refuse(op, err)
	}
	defer r.leave()
	if err := r.makeResults(); err != nil {
		return nil, 0, r.refuse(op, err)
	}
	r.batch.atomic(0, op, 0, at, compareAdd, swap, r.result0)
	return r.post(ctx, op, r.router.cq.spin, false, nil)
}

// take acquires the lock to post, unless the context has ended.
func (r *Requester) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !r.posting.Try() && !r.posting.Take(nil, ctx.Done()) {
		return ctx.Err()
	}
	return nil
}

// leave releases the lock to post, and drops what was not posted.
func (r *Requester) leave() {
	if b := r.batch; b.n > 0 || b.err != nil {
		b.Reset()
	}
	r.posting.Release()
}

// begin posts a list, once there is room for it. After an error nothing of it will be executed.
// spins is how often to poll for its completion at once. The slot is the caller's to wait for
// unless there is a call. Without a slot the list has succeeded.
func (r *Requester) begin(ctx context.Context, list []WR, spins uint32, pending bool, c *Call) (*slot, error) {
	const what = opList
	if err := r.take(ctx); err != nil {
		return nil, r.refuse(what, err)
	}
	defer r.leave()
	if err := r.alive(); err != nil {
		return nil, r.refuse(what, err)
	}
	if c != nil && c.flying.Load() {
		return nil, r.refuse(what, class(ErrState, errUnderWay))
	}
	for i := range list {
		r.batch.add(&list[i])
	}
	s, _, err := r.post(ctx, what, spins, pending, c)
	if err == nil && pending {
		r.unwaited.Add(1)
		s.open.Store(1 + uint64(s.gen))
	}
	return s, err
}

// post posts what is in the batch. posting must be held. A list that is over by then, and that
// nothing else waits for, needs no slot any more: old is what an atomic of it found.
func (r *Requester) post(ctx context.Context, what uint32, spins uint32, pending bool, c *Call) (s *slot, old uint64, err error) {
	b := r.batch
	n := b.Len()
	if b.err != nil || n == 0 {
		err := b.err
		if err == nil {
			err = r.refuse(what, ErrAttributes, "no requests")
		}
		return nil, 0, b.ended(err)
	}
	i, err := r.room(ctx, what, n)
	if err != nil {
		return nil, 0, b.ended(err)
	}
	s = &r.slots[i]
	s.gen++
	s.size, s.what, s.err, s.call = int32(n), what, nil, c
	id := r.index<<48 | uint64(i)<<24 | uint64(s.gen&genMask)<<1
	for k := range b.wrs[:n] {
		b.wrs[k].ID = id
	}
	b.wrs[n-1].ID = id | 1
	b.signal(n - 1)
	if what == opFetchAdd || what == opCmpSwap { // for the requester's own memory
		b.sges[0].Addr += 8 * uint64(i)
		binary.NativeEndian.PutUint64(r.results.Bytes()[8*i:], r.mark)
	}
	over, err := r.send(ctx, s, n, spins)
	if err != nil {
		return nil, 0, err
	}
	if over && !pending && c == nil && s.err == nil {
		if old, err = r.found(s); err == nil { // else await returns the error
			r.spare = s
			return nil, old, nil
		}
	}
	return s, 0, nil
}

// room waits until n requests fit, and takes a slot for them.
func (r *Requester) room(ctx context.Context, what uint32, n int) (uint32, error) {
	rt := r.router
	for {
		if err := r.alive(); err != nil {
			return 0, r.refuse(what, class(WCFlushed, err))
		}
		if i, ok := r.reserve(n); ok {
			return i, nil
		}
		if int(r.credits.Load()) >= n {
			if err := r.waitForSlot(ctx); err != nil {
				return 0, r.refuse(what, err)
			}
			continue
		}
		if !rt.pollLock.Take(nil, ctx.Done()) {
			return 0, r.refuse(what, ctx.Err())
		}
		if int(r.credits.Load()) >= n || r.qp.Err() != nil {
			rt.pollLock.Release()
			continue
		}
		switch err := rt.look(ctx); {
		case ctx.Err() != nil:
			return 0, r.refuse(what, ctx.Err())
		case err != nil:
			rt.broken(err)
		}
	}
}

// waitForSlot waits until a slot is given back: by a call that has its result, or at the
// end of a [Call], for which it polls.
func (r *Requester) waitForSlot(ctx context.Context) error {
	r.starved.Store(true)
	defer r.starved.Store(false)
	if r.hasSlot() {
		return nil
	}
	if int(r.unwaited.Load()) == len(r.slots) { // and no more are made meanwhile
		select {
		case <-r.freed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
			if int(r.unwaited.Load()) < len(r.slots) { // a slot is waited for by now
				return nil
			}
			return class(ErrQueueFull, errors.New("what was started is not waited for: see Pending.Wait"))
		}
	}
	rt := r.router
	if !rt.pollLock.Take(r.freed, ctx.Done()) {
		return ctx.Err()
	}
	if r.hasSlot() {
		rt.pollLock.Release()
		return nil
	}
	err := rt.look(ctx)
	if err != nil && ctx.Err() == nil {
		rt.broken(err)
		return nil
	}
	return err
}

func (r *Requester) hasSlot() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.free) > 0
}

// reserve takes a slot if n requests fit. posting must be held.
func (r *Requester) reserve(n int) (uint32, bool) {
	if int(r.credits.Load()) < n {
		return 0, false
	}
	if s := r.spare; s != nil {
		r.spare = nil
		return s.place, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.free) - 1
	if last < 0 {
		return 0, false
	}
	i := r.free[last]
	r.free = r.free[:last]
	return i, true
}

func (r *Requester) release(i uint32) {
	r.mu.Lock()
	r.free = append(r.free, i)
	r.mu.Unlock()
	if r.starved.Load() {
		select {
		case r.freed <- struct{}{}:
		default:
		}
		r.router.cq.wake() // the posting goroutine may be the one that polls
	}
}
