package verbs

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
	"github.com/goverbs/goverbs/internal/chanmutex"
)

// RequesterConfig configures a requester. The zero value is fine.
type RequesterConfig struct {
	// Linger is how long the device may take, after the context of a call has ended, to
	// be done with the call's memory. Then the queue pair is taken down. 0 means a
	// second, -1 any time.
	Linger time.Duration
}

// Requester posts requests to a queue pair for any number of goroutines, and each gets
// its own result:
//
//	r, err := verbs.NewRequester(qp, verbs.RequesterConfig{})
//	...
//	err = r.Read(ctx, remote, mr.SGE(0, 4096))
//
// It promises:
//
//   - A call returns when its own request has completed, never with another's
//     result. Requests of one call are executed in order, those of several
//     goroutines in any order.
//   - A call with a context that has ended does nothing. A context that ends later ends
//     the call at once. If the device has the request by then, the error is an
//     [InFlightError]: the memory that the request names stays the device's until
//     [InFlightError.Done], and so does the request's place in the queue. That is soon.
//     If it is not, because the peer does not respond, then after
//     [RequesterConfig.Linger] the queue pair is taken down, which is the only way to
//     have memory back.
//   - When a call has returned anything else, the device touches the call's memory no
//     more. A request that succeeded is a success, whatever became of the context. Lists
//     that are to outlive a call are [Requester.Start]'s and [Requester.Go]'s.
//   - Neither queue overruns: calls wait for room.
//   - The error of a request that was flushed has the failure that caused it
//     ([QP.Err]), which matches with errors.Is like [WCFlushed] does.
//   - No call allocates, unless there is an error; the first atomic allocates and registers memory
//     for the results of atomics.
//
// Until Close the sends of the queue pair belong to the requester. Their completion queue
// belongs to it, and to the requesters of other queue pairs that share the queue. Any
// other use (polling, waiting, batches) is refused with [ErrInUse]. So are receives that
// would complete there: give a queue pair that receives a RecvCQ.
//
// Methods may be called from any number of goroutines.
type Requester struct {
	qp     *QP
	router *router
	index  uint64
	linger time.Duration

	results *MR    // 8 bytes for each slot: what atomics found; nil before the first one
	result0 SGE    // the first slot's
	mark    uint64 // lies there before

	posting chanmutex.Mutex // owns batch and spare
	batch   *Batch
	spare   *slot // free, for the next post; nil: there is none

	slots    []slot
	mu       sync.Mutex
	capacity int32       // of the queue
	free     []uint32    // slots
	starved  atomic.Bool // the posting goroutine waits for a slot
	freed    chan struct{}
	unwaited atomic.Int32 // slots with a Pending that is not waited for yet
	credits  atomic.Int32 // requests that the queue has room for

	// No post while the queue pair is reset, or cut off: one without the poll lock holds sending,
	// and one with the poll lock begins only if holding is not set.
	sending sync.Mutex
	holding atomic.Bool

	// current, under the poll lock, is the list of the goroutine that posts and polls in one
	// crossing. Only that goroutine knows of it, so neither it nor its call is flying, and it is
	// not counted in credits; publish makes it so if the poll has not found its end.
	current *slot

	closing sync.Mutex // a second Close waits for the first

	down   sync.Mutex // one takes the queue pair down
	cutOff bool       // with requests under way: their completions may still be in the queue
	closed atomic.Bool
}

// slot is a list under way, or free. From the post until flying is false the device owns the
// memory that the requests name, and the slot's own result. Then the owner of the slot does:
// the call that posted the list, or waits for it; the goroutine of awaitLeft, if the call's
// context has ended; or the poller, if there is a Call. The owner frees the slot.
type slot struct {
	place uint32 // among the slots

	// Owned by the caller that has the slot, until it is in flight.
	gen  uint32
	size int32  // requests
	what uint32 // opcode, or opList

	call *Call // is ended with the list, which frees the slot; nil: a goroutine waits for the slot

	ending
	open atomic.Uint64 // 1 + gen of the list that Wait is still to be called for

	err  error  // once not flying any more
	life uint32 // of the queue pair, if err is errUnexplained
}

// errUnexplained is for a flushed request of a queue pair without a cause of its end
// yet: the cause is about to be known.
var errUnexplained = errors.New("flushed")

const defaultLinger = time.Second

// NewRequester takes over the sends of a queue pair. Memory regions, peer and state of
// the queue pair remain the program's concern. Requests that are already in the queue
// must have completed.
func NewRequester(qp *QP, cfg RequesterConfig) (*Requester, error) {
	const op = "make requester for"
	refuse := func(detail ...any) (*Requester, error) {
		return nil, opError(op, qp.life.Label, ErrAttributes, detail...)
	}
	switch {
	case qp.typ == DCT || qp.typ == RawPacket || qp.typ.unconnected():
		return refuse("a queue pair of type ", qp.typ)
	case qp.pd == nil || qp.sendCQ == nil:
		return refuse("other code made it")
	case qp.sendCQ.solicited:
		return refuse("its completions do not wake: ", qp.sendCQ.life.Label, " is SolicitedOnly")
	case qp.srq != nil && qp.recvCQ == qp.sendCQ:
		return refuse("what it receives from ", qp.srq.life.Label, " completes in the same queue: give it a RecvCQ")
	case cfg.Linger < -1:
		return refuse("Linger ", cfg.Linger)
	case cfg.Linger == 0:
		cfg.Linger = defaultLinger
	}
	if err := qp.life.AddChild("requester"); err != nil {
		return nil, err
	}
	r, err := newRequester(qp, cfg)
	if err != nil {
		qp.life.RemoveChild("requester")
		return nil, err
	}
	return r, nil
}

func newRequester(qp *QP, cfg RequesterConfig) (*Requester, error) {
	n := min(qp.MaxSendWR(), maxSlots)
	r := &Requester{qp: qp, linger: cfg.Linger, posting: chanmutex.New(), mark: rand.Uint64(), slots: make([]slot, n), freed: make(chan struct{}, 1), free: make([]uint32, n)}
	r.capacity = int32(n)
	r.credits.Store(r.capacity)
	for i := range r.slots {
		r.slots[i].place = uint32(i)
		r.slots[i].gen = rand.Uint32()
		r.slots[i].token = make(chan struct{}, 1)
		r.free[i] = uint32(n - 1 - i)
	}
	var err error
	if r.batch, err = qp.NewBatch(n); err != nil {
		return nil, err
	}
	r.batch.owned = true
	if err = qp.sendCQ.routeTo(n, r.routed); err != nil {
		return nil, err
	}
	qp.modify.Lock()
	defer qp.modify.Unlock()
	if qp.owner != "" {
		qp.sendCQ.unroute(r.index, n, false)
		return nil, opError("make requester for", qp.life.Label, ErrInUse, qp.owner, " has its sends")
	}
	if !qp.requester.CompareAndSwap(nil, r) {
		qp.sendCQ.unroute(r.index, n, false)
		return nil, opError("make requester for", qp.life.Label, ErrInUse, "it has one")
	}
	return r, nil
}

func (r *Requester) routed(rt *router, at uint64) routed {
	r.router, r.index = rt, at
	return r
}

// Close gives the queue pair back. If anything is under way, it is taken down
// first: calls that wait get [ErrClosed]. The queue pair itself stays open.
// Closing twice is not an error.
func (r *Requester) Close() error {
	r.closing.Lock()
	defer r.closing.Unlock()
	if r.closed.Swap(true) {
		return nil
	}
	var err error
	finish(func() { err = r.close() })
	return err
}

func (r *Requester) close() error {
	end := func() {
		life, _ := r.qp.lived() // that of what is under way, or a later one of nothing
		if r.busy() {
			r.takeDownIn(life, opError("use", r.qp.named(), ErrClosed))
		}
	}
	end()                    // wakes calls that wait for room
	r.posting.Take(nil, nil) // no more posts
	defer r.posting.Release()
	if s := r.spare; s != nil {
		r.spare = nil
		r.release(s.place)
	}
	end()
	r.waitTaken()
	r.qp.sendCQ.unroute(r.index, len(r.slots), r.cutOff)
	r.qp.requester.Store(nil)
	r.qp.life.RemoveChild("requester")
	if r.results == nil {
		return nil
	}
	return r.results.Close()
}

// busy reports whether anything is under way.
func (r *Requester) busy() bool { return r.credits.Load() < r.capacity }

// waitTaken waits until all calls have taken their results, which are ready.
func (r *Requester) waitTaken() {
	for pause := backoff.New(10*time.Microsecond, time.Millisecond); ; pause.Sleep() {
		r.mu.Lock()
		taken := len(r.slots) - len(r.free)
		r.mu.Unlock()
		if taken <= int(r.unwaited.Load()) {
			return
		}
	}
}

// Poll polls once, for all that share the queue, unless another goroutine is polling. It
// is for programs with lists under way ([Requester.Go]) that no goroutine waits for.
func (r *Requester) Poll() {
	if rt := r.router; rt.try() {
		_ = rt.pollOnceLocked() // goroutines that wait get the error
	}
}

// alive returns why nothing can be posted, or nil.
func (r *Requester) alive() error {
	if r.closed.Load() {
		return opError("use requester of", r.qp.named(), ErrClosed)
	}
	return r.qp.Err()
}

// opList is a list of a caller.
const opList = 1 << 16

func (r *Requester) refuse(what uint32, err error, detail ...any) error {
	name := "list"
	if what != opList {
		name = opcodeNames[what]
	}
	return opError(name+" on", r.qp.named(), err, detail...)
}
