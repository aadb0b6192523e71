package verbs

import (
	"context"
	"encoding/binary"
	"errors"
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
