package verbs

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
)

// ReceiverConfig configures a receiver. The zero value is fine.
type ReceiverConfig struct {
	// Size is how many bytes the longest message has; 0 means 4096. A longer one
	// ends the connection, on both sides; longer datagrams are dropped.
	Size int
	// Depth is how many messages may arrive before they are taken; 0 means what
	// the receive queue holds ([QPConfig.MaxRecvWR]).
	Depth int
	// Arrived, if it is not nil, is called when a message has arrived. It is for programs
	// that take messages by [Receiver.TryReceive] and have no goroutine that waits for
	// them. Some other goroutine must then wait for something else of the completion
	// queue ([Dispatcher.Wait]), since it polls for all. That goroutine calls Arrived with
	// the poll lock; it must neither wait nor call the receiver. One call may stand for several
	// consecutive messages. By the time it runs its message may have been taken, or
	// TryReceive may return an error instead: Arrived is also called for flushed
	// receives.
	Arrived func()
}

// Receiver keeps receives posted to a queue pair, and hands out what arrives to
// any number of goroutines, each message to one of them:
//
//	r, err := verbs.NewReceiver(qp, verbs.ReceiverConfig{})
//	...
//	buf := make([]byte, r.Size())
//	m, err := r.Receive(ctx, buf)
//	// nil: buf[:m.Len] is the message
//
// Messages that one goroutine takes come in the order in which they arrived. Messages
// that arrived before the queue pair ended are handed out before the error that says so.
// When a peer has sent more than Depth messages that are not taken, an RC queue pair makes
// it wait ([ConnectConfig.RNRTimer]); UC and UD lose messages.
//
// Until Close the receives of the queue pair belong to the receiver. The queue where they
// complete belongs to it, and to other receivers and requesters that share the queue. Any
// other use is refused with [ErrInUse].
//
// Methods may be called from any number of goroutines.
type Receiver struct {
	qp      *QP
	router  *router
	index   uint64
	size    int
	head    int    // bytes before a message: the route header of datagrams
	each    int    // bytes of a slot: some devices fail at a datagram that does not fit
	arrived func() // may be nil
	mr      *MR    // slots' memory, one after the other

	posting sync.Mutex // owns batch, and which slots are posted
	batch   *RecvBatch
	slots   []recvSlot
	posted  atomic.Int32 // slots that are the device's

	mu      sync.Mutex
	ready   []uint32 // slots that have messages: a ring
	first   int
	waiting atomic.Int32
	some    atomic.Int32  // slots in ready
	wake    chan struct{} // has a token when a message came while a goroutine waited

	life    atomic.Uint32 // of the queue pair, when something was flushed
	flushed atomic.Bool
	reset   atomic.Bool

	inside  atomic.Int32 // calls under way
	closing sync.Mutex   // a second Close waits for the first
	closed  atomic.Bool
	cutOff  bool // with receives posted: their completions may still be in the queue
}

// recvSlot is a piece of memory for one message. From post to deliver it is the
// device's, from deliver to take it waits in ready, then it is the goroutine's
// that took it.
type recvSlot struct {
	gen    uint32
	flying atomic.Bool
	wc     WC
	drop   bool // a datagram that is too long
}

// Message is a message that a receive took.
type Message struct {
	// Len is how many bytes were copied.
	Len int
	// Imm is the immediate, if HasImm.
	Imm    uint32
	HasImm bool
	// Written is how many bytes a WRITE with immediate wrote to memory elsewhere;
	// such a message has none of its own.
	Written int

	wc  WC
	grh [GRHSize]byte
}

// SrcQP is the number of the queue pair that sent a datagram.
func (m *Message) SrcQP() uint32 { return m.wc.SrcQP() }

// CreateAH makes the way back to the sender of a datagram, as
// [PD.CreateAHFromWC] does.
func (m *Message) CreateAH(p *PD, port uint8) (*AH, error) {
	return p.CreateAHFromWC(&m.wc, m.grh[:], port)
}

const defaultMessageSize = 4096

// NewReceiver takes over the receives of a queue pair and posts them: do it
// before the peer can send. Receives that are in the queue already must have
// completed.
func NewReceiver(qp *QP, cfg ReceiverConfig) (*Receiver, error) {
	const op = "make receiver for"
	refuse := func(detail ...any) (*Receiver, error) {
		return nil, opError(op, qp.life.Label, ErrAttributes, detail...)
	}
	if cfg.Size == 0 {
		cfg.Size = defaultMessageSize
	}
	if cfg.Depth == 0 {
		cfg.Depth = qp.MaxRecvWR()
	}
	switch {
	case qp.typ == DCI || qp.typ == DCT || qp.typ == RawPacket || qp.typ == SRD:
		return refuse("a queue pair of type ", qp.typ)
	case qp.pd == nil || qp.recvCQ == nil:
		return refuse("other code made it")
	case qp.srq != nil:
		return refuse("it receives from ", qp.srq.life.Label)
	case qp.recvCQ.solicited:
		return refuse("not all of its completions wake: ", qp.recvCQ.life.Label, " is SolicitedOnly")
	case cfg.Size < 0 || cfg.Size > maxSGELength-GRHSize:
		return refuse("Size ", cfg.Size)
	case cfg.Depth < 0 || cfg.Depth > qp.MaxRecvWR() || cfg.Depth > maxSlots:
		return refuse("Depth ", cfg.Depth, "; the queue holds ", qp.MaxRecvWR())
	}
	if err := qp.life.AddChild("receiver"); err != nil {
		return nil, err
	}
	if err := qp.stands(op); err != nil { // what is posted now may never be flushed
		qp.life.RemoveChild("receiver")
		return nil, err
	}
	r, err := newReceiver(qp, cfg)
	if err != nil {
		qp.life.RemoveChild("receiver")
		return nil, err
	}
	return r, nil
}

func newReceiver(qp *QP, cfg ReceiverConfig) (*Receiver, error) {
	n := cfg.Depth
	r := &Receiver{qp: qp, size: cfg.Size, arrived: cfg.Arrived, slots: make([]recvSlot, n), ready: make([]uint32, n), wake: make(chan struct{}, 1)}
	r.each = r.size
	if qp.typ == UD {
		port, err := qp.pd.dev.Port(qp.gid.Port)
		if err != nil {
			return nil, err
		}
		r.head = GRHSize
		r.each = r.head + max(r.size, port.MaxMTU.Bytes())
	}
	for i := range r.slots {
		r.slots[i].gen = rand.Uint32()
	}
	var err error
	if r.batch, err = qp.NewRecvBatch(n); err != nil {
		return nil, err
	}
	if r.mr, err = qp.pd.AllocMR(n*r.each, MRConfig{}); err != nil {
		return nil, err
	}
	if err = qp.recvCQ.routeTo(n, r.routed); err != nil {
		return nil, errors.Join(err, r.mr.Close())
	}
	qp.modify.Lock() // a reset holds the posts of those that it finds
	if !qp.receiver.CompareAndSwap(nil, r) {
		qp.modify.Unlock()
		qp.recvCQ.unroute(r.index, n, false)
		return nil, errors.Join(opError("make receiver for", qp.life.Label, ErrInUse, "it has one"), r.mr.Close())
	}
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	err = r.post(all...)
	qp.modify.Unlock()
	if err != nil {
		return nil, errors.Join(err, r.end())
	}
	return r, nil
}

func (r *Receiver) routed(rt *router, at uint64) routed {
	r.router, r.index = rt, at
	return r
}

// Size is how many bytes the longest message has.
func (r *Receiver) Size() int { return r.size }

// post gives slots to the device.
func (r *Receiver) post(slots ...uint32) error {
	r.posting.Lock()
	defer r.posting.Unlock()
	if r.closed.Load() || r.reset.Load() {
		return nil
	}
	for _, i := range slots {
		s := &r.slots[i]
		s.gen++
		s.flying.Store(true)
		r.batch.Recv(r.index<<48|uint64(i)<<24|uint64(s.gen&genMask)<<1|1, r.mr.SGE(int(i)*r.each, r.each))
	}
	r.posted.Add(int32(len(slots)))
	n, err := r.batch.Post()
	for _, i := range slots[n:] {
		r.slots[i].flying.Store(false)
		r.posted.Add(-1)
	}
	return err
}

// takeDown is [routed]'s.
func (r *Receiver) takeDown(cause error) {
	if r.closed.Load() { // Close does so
		return
	}
	r.takeDownIn(r.qp.terminate(cause))
}

func (r *Receiver) takeDownIn(life uint32) {
	defer func() { go r.notify() }()
	err := r.router.reclaim(r.qp, life, r.busy)
	if err != nil && !errors.Is(err, errRevived) { // the device is gone
		r.posting.Lock()
		defer r.posting.Unlock()
		r.cut()
	}
}

func (r *Receiver) busy() bool { return r.posted.Load() > 0 }

// cut is for a queue pair that was reset: it has forgotten its receives. The
// caller keeps others from posting.
func (r *Receiver) cut() {
	rt := r.router
	rt.hold()
	defer rt.pollLock.Release()
	finish(func() {
		drained := rt.pollAll()
		for i := range r.slots {
			if s := &r.slots[i]; s.flying.Swap(false) {
				r.cutOff = r.cutOff || !drained
				r.posted.Add(-1)
			}
		}
		r.reset.Store(true)
		go r.notify()
	})
}

// Close gives the receives of the queue pair back. Posted receives can only be got back
// by taking the queue pair down, which Close does, so it is meant for the end of a
// connection. Messages that were not taken are lost, and calls that wait get
// [ErrClosed]. Closing twice is not an error.
func (r *Receiver) Close() error {
	r.closing.Lock()
	defer r.closing.Unlock()
	if r.closed.Load() {
		return nil
	}
	defer r.qp.life.RemoveChild("receiver")
	var err error
	finish(func() { err = r.end() })
	return err
}

func (r *Receiver) end() error {
	r.posting.Lock() // no more posts
	r.closed.Store(true)
	life, _ := r.qp.lived()
	busy := r.busy()
	r.posting.Unlock()
	if busy {
		r.qp.terminateIn(life, opError("use", r.qp.named(), ErrClosed))
		r.takeDownIn(life)
	}
	for pause := backoff.New(20*time.Microsecond, time.Millisecond); r.inside.Load() > 0; pause.Sleep() {
		r.notify()
	}
	r.qp.recvCQ.unroute(r.index, len(r.slots), r.cutOff)
	r.qp.receiver.Store(nil)
	return r.mr.Close()
}
