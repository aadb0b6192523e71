package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/turn"
)

// RequesterConfig says how a requester behaves. The zero value is fine.
type RequesterConfig struct {
	// Linger is how long a call whose context has ended waits for the device to
	// be done with the call's memory, before it takes the queue pair down; 0
	// means a second, -1 any time.
	Linger time.Duration
}

// Requester posts requests to a queue pair for any number of goroutines, and
// each gets its own answer:
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
//   - When a call has returned, the device touches the call's memory no more.
//     A context that ends before the request is posted ends the call; afterwards
//     the call waits for the device, which is done soon. If it is not, because
//     the peer does not answer, then after [RequesterConfig.Linger] the queue pair
//     is taken down, which is the only way to have memory back. A request that
//     succeeded is a success, whatever became of the context. Lists that are to
//     outlive a call are [Requester.Start]'s and [Requester.Go]'s.
//   - Neither queue overruns: calls wait for room.
//   - The error of a request that was flushed has the failure that caused it
//     ([QP.Err]), which matches with errors.Is like [WCFlushed] does.
//   - Nothing is allocated, unless there is an error.
//
// Until Close the sends of the queue pair are the requester's, and their
// completion queue is its own and that of requesters of other queue pairs: what
// would go past it, polling, waiting, batches, is refused with [ErrInUse]. So are
// receives that would complete there: give a queue pair that receives a RecvCQ.
//
// Methods may be called from any number of goroutines.
type Requester struct {
	qp     *QP
	router *router
	index  uint64
	linger time.Duration

	results *MR    // 8 bytes for each slot: what atomics found
	result0 SGE    // the first slot's
	mark    uint64 // lies there before

	posting turn.Turn // owns batch and list
	batch   *Batch
	list    List

	slots    []slot
	mu       sync.Mutex
	capacity int32       // of the queue
	free     []uint32    // slots
	starved  atomic.Bool // who posts waits for a slot
	freed    chan struct{}
	unwaited atomic.Int32 // slots whose Pending nobody waits for yet
	credits  atomic.Int32 // requests that the queue has room for

	sending sync.Mutex // no post while the queue pair is reset

	closing sync.Mutex // whoever closes second waits

	down   sync.Mutex // one takes the queue pair down
	cutOff bool       // by a reset, with requests under way
	closed atomic.Bool
}

// slot is a list under way, or free.
type slot struct {
	place uint32 // among the slots

	// Of whoever has the slot, until it is in flight.
	gen  uint32
	size int32  // requests
	what uint32 // opcode, or opList

	call *Call // that is told of the end and leaves the slot free; nil: somebody waits for the slot

	ending
	open atomic.Uint64 // 1 + gen of the list whose Wait is still to be called

	err  error  // once not flying any more
	life uint32 // of the queue pair, if err is errUnexplained
}

// errUnexplained is a flushed request whose queue pair has not died yet: what
// ended it is about to be known.
var errUnexplained = errors.New("flushed")

const defaultLinger = time.Second

// NewRequester takes over the sends of a queue pair, whose memory regions, peer
// and state stay the program's matter. Requests that are in the queue already
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
	if err := qp.life.Adopt("requester"); err != nil {
		return nil, err
	}
	r, err := newRequester(qp, cfg)
	if err != nil {
		qp.life.Release("requester")
		return nil, err
	}
	return r, nil
}

func newRequester(qp *QP, cfg RequesterConfig) (*Requester, error) {
	n := min(qp.MaxSendWR(), mostSlots)
	r := &Requester{qp: qp, linger: cfg.Linger, posting: turn.New(), mark: rand.Uint64(), slots: make([]slot, n), freed: make(chan struct{}, 1), free: make([]uint32, n)}
	r.capacity = int32(n)
	r.credits.Store(r.capacity)
	for i := range r.slots {
		r.slots[i].place = uint32(i)
		r.slots[i].gen = rand.Uint32()
		r.slots[i].wake = make(chan struct{}, 1)
		r.free[i] = uint32(n - 1 - i)
	}
	var err error
	if r.batch, err = qp.NewBatch(n); err != nil {
		return nil, err
	}
	r.list.b = r.batch
	if r.results, err = qp.pd.AllocMR(8*n, MRConfig{}); err == nil {
		r.result0 = r.results.SGE(0, 8)
		if r.router, r.index, err = qp.sendCQ.route(r, n); err != nil {
			err = errors.Join(err, r.results.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	qp.modify.Lock()
	defer qp.modify.Unlock()
	if !qp.requester.CompareAndSwap(nil, r) {
		qp.sendCQ.unroute(r.index, n, false)
		return nil, errors.Join(opError("make requester for", qp.life.Label, ErrInUse, "it has one"), r.results.Close())
	}
	return r, nil
}

// QP is the queue pair that the requests go to.
func (r *Requester) QP() *QP { return r.qp }

// Close gives the queue pair back. If anything is under way, it is taken down
// first: calls that wait get [ErrClosed]. The queue pair itself stays open.
// Closing twice is not an error.
func (r *Requester) Close() error {
	r.closing.Lock()
	defer r.closing.Unlock()
	if r.closed.Swap(true) {
		return nil
	}
	end := func() {
		life, _ := r.qp.lived() // that of what is under way, or a later one of nothing
		if r.busy() {
			r.takeDownIn(life, opError("use", r.qp.named(), ErrClosed))
		}
	}
	end()                    // those who wait for room look up
	r.posting.Take(nil, nil) // nobody posts any more
	defer r.posting.Release()
	end()
	r.answered()
	r.qp.sendCQ.unroute(r.index, len(r.slots), r.cutOff)
	r.qp.requester.Store(nil)
	r.qp.life.Release("requester")
	return r.results.Close()
}

// busy tells whether anything is under way.
func (r *Requester) busy() bool { return r.credits.Load() < r.capacity }

// answered waits until calls have their answers, all of which are there.
func (r *Requester) answered() {
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		r.mu.Lock()
		taken := len(r.slots) - len(r.free)
		r.mu.Unlock()
		if taken <= int(r.unwaited.Load()) {
			return
		}
		time.Sleep(pause)
	}
}

// alive is why nothing can be posted.
func (r *Requester) alive() error {
	if r.closed.Load() {
		return opError("use requester of", r.qp.named(), ErrClosed)
	}
	return r.qp.Err()
}

// begin posts a list that build makes, once there is room for it. An error says
// that nothing of it will be executed. spins is how often to look for its
// completion at once. The slot is the caller's to wait for unless there is a call.
func (r *Requester) begin(ctx context.Context, build func(*List), spins uint32, pending bool, c *Call) (*slot, error) {
	const what = opList
	if !r.posting.Take(nil, ctx.Done()) {
		return nil, r.refuse(what, ctx.Err())
	}
	defer r.posting.Release()
	if err := r.alive(); err != nil {
		return nil, r.refuse(what, err)
	}
	switch {
	case build == nil:
		return nil, r.refuse(what, ErrAttributes, "no function that makes it")
	case c != nil && c.flying.Load():
		return nil, r.refuse(what, ErrState, "the call is under way")
	}
	defer r.batch.Reset() // if build panics
	r.list.Flags = 0
	build(&r.list)
	s, err := r.post(ctx, what, spins, c)
	if err == nil && pending {
		r.unwaited.Add(1)
		s.open.Store(1 + uint64(s.gen))
	}
	return s, err
}

// post posts what is in the batch. The caller has the turn to post.
func (r *Requester) post(ctx context.Context, what uint32, spins uint32, c *Call) (*slot, error) {
	b := r.batch
	n := b.Len()
	if b.err != nil || n == 0 {
		err := b.err
		if err == nil {
			err = r.refuse(what, ErrAttributes, "no requests")
		}
		return nil, b.ended(err)
	}
	i, err := r.room(ctx, what, n)
	if err != nil {
		return nil, b.ended(err)
	}
	s := &r.slots[i]
	s.gen++
	s.size, s.what, s.err, s.call = int32(n), what, nil, c
	id := r.index<<48 | uint64(i)<<24 | uint64(s.gen&genMask)<<1
	for k := range b.wrs[:n] {
		b.wrs[k].ID = id
	}
	last := &b.wrs[n-1]
	last.ID, last.Flags = id|1, last.Flags|uint32(Signaled)
	if what == opFetchAdd || what == opCmpSwap { // for the requester's own memory
		b.sges[0].Addr += 8 * uint64(i)
		binary.NativeEndian.PutUint64(r.results.Bytes()[8*i:], r.mark)
	}
	select {
	case <-s.wake: // left over
	default:
	}
	return s, r.send(s, i, n, spins)
}

// send posts the batch, whose slot is in flight.
func (r *Requester) send(s *slot, i uint32, n int, spins uint32) error {
	b, rt := r.batch, r.router
	var posted, got int
	var err error
	c := s.call
	r.sending.Lock()
	s.flying.Store(true)
	if c != nil {
		c.r = r
		c.flying.Store(true)
	}
	r.credits.Add(int32(-n))
	if rt.turn.Try() {
		posted, got, err = b.postPoll(rt.cq, rt.wcs[:], spins)
		rt.deliver(rt.wcs[:got])
		rt.turn.Release()
	} else {
		posted, err = b.Post()
	}
	if posted == 0 && err != nil { // nothing is under way
		if c != nil {
			s.call = nil
			c.flying.Store(false)
		}
		r.end(s)
		r.sending.Unlock()
		r.release(i)
		return err
	}
	r.sending.Unlock()
	switch {
	case err == nil:
		if life, cause := r.qp.ended(); cause != nil { // perhaps nobody has this flushed
			go r.flush(life, cause)
		}
		return nil
	case posted < n:
		// What was posted gets no completion of its own. It is known to be over
		// when all of the queue is.
		r.takeDown(err)
		return nil
	}
	rt.broken(err)
	return nil
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
		if !rt.turn.Take(nil, ctx.Done()) {
			return 0, r.refuse(what, ctx.Err())
		}
		if int(r.credits.Load()) >= n || r.qp.Err() != nil {
			rt.turn.Release()
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

// waitForSlot waits until a slot is given back: by those who have their answers, or
// because a call is over, which perhaps nobody else polls for.
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
			return class(ErrQueueFull, errors.New("nobody waits for what was started: see Pending.Wait"))
		}
	}
	rt := r.router
	if !rt.turn.Take(r.freed, ctx.Done()) {
		return ctx.Err()
	}
	if r.hasSlot() {
		rt.turn.Release()
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

// reserve takes a slot if n requests fit.
func (r *Requester) reserve(n int) (uint32, bool) {
	if int(r.credits.Load()) < n {
		return 0, false
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
		r.router.cq.wake() // who posts may be the one that polls
	}
}

// deliver is [routed]'s.
func (r *Requester) deliver(id uint64, wc *WC) bool {
	i := id >> 24 & (mostSlots - 1)
	if i >= uint64(len(r.slots)) {
		return false
	}
	s := &r.slots[i]
	if !s.flying.Load() || uint32(id>>1)&genMask != s.gen&genMask {
		return false
	}
	if wc.wc.Status != uint32(WCSuccess) && s.err == nil {
		s.err = r.failure(s, wc)
	}
	if id&1 != 0 {
		r.end(s)
	}
	return true
}

// failure is the error of a request that failed.
func (r *Requester) failure(s *slot, wc *WC) error {
	life, cause := r.qp.lived()
	if wc.Status() != WCFlushed {
		err := r.refuse(s.what, wc.Err())
		if cause == nil {
			r.qp.die(err)
		}
		return err
	}
	if cause == nil {
		s.life = life
		return errUnexplained
	}
	return r.refuse(s.what, class(WCFlushed, cause))
}

// result is the error of a slot that is over.
func (r *Requester) result(s *slot) error {
	if s.err != errUnexplained {
		return s.err
	}
	return r.refuse(s.what, class(WCFlushed, r.qp.explain(s.life)))
}

// end is a slot's end, in turn or before anybody else knows of it. There is room
// in the queue before the slot's owner can know, who has the slot afterwards.
func (r *Requester) end(s *slot) {
	r.credits.Add(s.size)
	if s.call == nil {
		s.ending.end()
	} else {
		r.endCall(s)
	}
}

// await waits until a slot is over, frees it and answers its error.
func (r *Requester) await(ctx context.Context, s *slot) error {
	if s.flying.Load() {
		r.waitFor(ctx, s)
	}
	err := r.result(s)
	r.release(s.place)
	return err
}

func (r *Requester) waitFor(ctx context.Context, s *slot) {
	rt := r.router
	lingering := false
	for s.flying.Load() {
		var err error
		if rt.turn.Try() || s.listen(ctx, rt) {
			err = s.look(ctx, rt)
		}
		ended := ctx.Err() != nil // asked once: it may end at any time
		switch {
		case !s.flying.Load():
		case ended && !lingering && r.linger > 0:
			lingering = true
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), r.linger, context.Cause(ctx))
			defer cancel()
		case ended && !lingering:
			lingering, ctx = true, context.WithoutCancel(ctx)
		case ended:
			life, _ := r.qp.lived()
			if !s.flying.Load() {
				return
			}
			r.takeDownIn(life, r.refuse(s.what, context.Cause(ctx), "the device was not done with it ", r.linger, " after its context had ended"))
			ctx = context.WithoutCancel(ctx)
		case err != nil:
			rt.broken(err)
		}
	}
}

// takeDown has everything that is under way flushed, for that reason. The caller
// has not the turn to poll. Where the device does not flush, the queue pair is
// reset: that ends its use of memory too.
func (r *Requester) takeDown(cause error) {
	if r.closed.Load() { // Close does so
		return
	}
	r.flush(r.qp.die(cause), cause)
}

// takeDownIn is takeDown of what is under way in that life of the queue pair.
func (r *Requester) takeDownIn(life uint32, cause error) {
	r.qp.dieIn(life, cause)
	r.flush(life, cause)
}

// flush is takeDown for a queue pair that died in that life of it. In another
// it is left alone.
func (r *Requester) flush(life uint32, cause error) {
	r.down.Lock()
	defer r.down.Unlock()
	reset, err := r.router.reclaim(r.qp, life, r.busy)
	switch {
	case errors.Is(err, errRevived) || err == nil && !reset:
		return
	case err != nil: // the device is gone, and touches nothing any more
		cause = errors.Join(cause, err)
		r.sending.Lock()
		r.cut(cause)
		r.sending.Unlock()
	}
	r.qp.die(cause)
}

// cut ends what is under way in a queue pair that was reset.
func (r *Requester) cut(cause error) {
	rt := r.router
	rt.hold()
	defer rt.turn.Release()
	rt.glanceAll() // what had succeeded did
	for i := range r.slots {
		if s := &r.slots[i]; s.flying.Load() {
			r.cutOff = true
			s.err = r.refuse(s.what, class(WCFlushed, cause))
			r.end(s)
		}
	}
}
