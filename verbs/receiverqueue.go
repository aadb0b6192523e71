package verbs

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
)

// What came lies in a ring of slots until a Receive takes it.

// deliver is [routed]'s.
func (r *Receiver) deliver(id uint64, wc *WC) bool {
	i := id >> 24 & (maxSlots - 1)
	if i >= uint64(len(r.slots)) {
		return false
	}
	s := &r.slots[i]
	if !s.flying.Load() || uint32(id>>1)&genMask != s.gen&genMask {
		return false
	}
	s.flying.Store(false)
	defer r.posted.Add(-1) // after Arrived, whatever that does
	switch wc.Status() {
	case WCSuccess:
		s.wc = *wc
		s.drop = r.head > 0 && wc.Len() > r.head+r.size
		r.put(uint32(i))
	case WCFlushed:
		life, _ := r.qp.lived()
		r.life.Store(life)
		r.flushed.Store(true)
		r.nudge()
		if r.arrived != nil { // a flushed receive may be the only sign of the end
			r.arrived()
		}
	default:
		r.qp.terminate(opError("receive on", r.qp.named(), wc.Err()))
	}
	return true
}

// put and take are the ring of messages.
func (r *Receiver) put(i uint32) {
	r.mu.Lock()
	r.ready[(r.first+int(r.some.Load()))%len(r.ready)] = i
	r.some.Add(1)
	r.mu.Unlock()
	r.nudge()
	if r.arrived != nil {
		r.arrived()
	}
}

func (r *Receiver) take() (i uint32, ok bool) {
	if r.some.Load() == 0 {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.some.Load() == 0 {
		return 0, false
	}
	i = r.ready[r.first]
	r.first = (r.first + 1) % len(r.ready)
	r.some.Add(-1)
	return i, true
}

// nudge wakes one waiting goroutine, which wakes the next one if there is reason to.
func (r *Receiver) nudge() {
	if r.waiting.Load() > 0 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Receive waits for a message and copies it into buf, which must have room for
// the longest one ([Receiver.Size]); a shorter buffer is [ErrAttributes]. The message's receive is
// posted again before Receive returns. Each message goes to one call.
//
// With a context that has ended Receive takes no message. When the context ends during the wait,
// Receive returns a message that has arrived by then, or else the context's error; no message is
// lost. When the queue pair has ended, Receive returns the messages that arrived before, and then
// the cause, which matches [WCFlushed] and what [QP.Err] matches, in all further calls. After
// Close it returns [ErrClosed].
func (r *Receiver) Receive(ctx context.Context, buf []byte) (Message, error) {
	const op = "receive on"
	if r.closed.Load() {
		return Message{}, opError(op, r.qp.named(), ErrClosed)
	}
	if len(buf) < r.size {
		return Message{}, opError(op, r.qp.named(), ErrAttributes, "a buffer of ", len(buf), " bytes; a message may have ", r.size)
	}
	if err := ctx.Err(); err != nil {
		return Message{}, opError(op, r.qp.named(), err)
	}
	r.inside.Add(1)
	defer r.inside.Add(-1)
	for {
		if r.closed.Load() {
			return Message{}, opError(op, r.qp.named(), ErrClosed)
		}
		if m, ok := r.next(buf); ok {
			return m, nil
		}
		if err := r.over(); err != nil {
			if m, ok := r.next(buf); ok { // it came before the end
				return m, nil
			}
			return Message{}, opError(op, r.qp.named(), err)
		}
		if err := r.wait(ctx); err != nil {
			if rt := r.router; rt.pollLock.Try() { // even with an ended context, poll once
				_ = rt.pollOnceLocked()
			}
			if m, ok := r.next(buf); ok {
				return m, nil
			}
			return Message{}, opError(op, r.qp.named(), err)
		}
	}
}

// TryReceive is Receive without waiting: ok reports whether there was a message. An error
// means that no more will come, or that buf is too short. It does not poll: see
// [ReceiverConfig.Arrived].
func (r *Receiver) TryReceive(buf []byte) (m Message, ok bool, err error) {
	const op = "receive on"
	r.inside.Add(1)
	defer r.inside.Add(-1)
	switch {
	case r.closed.Load():
		return m, false, opError(op, r.qp.named(), ErrClosed)
	case len(buf) < r.size:
		return m, false, opError(op, r.qp.named(), ErrAttributes, "a buffer of ", len(buf), " bytes; a message may have ", r.size)
	}
	if m, ok = r.next(buf); ok {
		return m, true, nil
	}
	if err = r.over(); err != nil {
		if m, ok = r.next(buf); ok { // it came before the end
			return m, true, nil
		}
		err = opError(op, r.qp.named(), err)
	}
	return m, false, err
}

// next returns the next message that is there.
func (r *Receiver) next(buf []byte) (Message, bool) {
	for {
		i, ok := r.take()
		if !ok {
			return Message{}, false
		}
		if !r.slots[i].drop {
			return r.message(i, buf), true
		}
		r.again(i)
	}
}

// message copies what a slot got, and posts it again.
func (r *Receiver) message(i uint32, buf []byte) Message {
	s := &r.slots[i]
	m := Message{wc: s.wc}
	m.Imm, m.HasImm = s.wc.Imm()
	b := r.mr.Bytes()[int(i)*r.each:]
	if s.wc.Opcode() == WCRecvRDMAWithImm {
		m.Written = s.wc.Len()
	} else {
		copy(m.grh[:r.head], b)
		m.Len = copy(buf, b[r.head:max(r.head, s.wc.Len())])
	}
	r.again(i)
	if r.some.Load() > 0 {
		r.nudge()
	}
	return m
}

// again posts a slot's receive again.
func (r *Receiver) again(i uint32) {
	life, _ := r.qp.lived()
	if err := r.post(i); err != nil {
		r.qp.terminateIn(life, err)
	}
}

// over returns why no more messages come, or nil.
func (r *Receiver) over() error {
	cause := r.qp.Err()
	switch {
	case cause != nil:
	case r.reset.Load():
		cause = errRevived
	case r.flushed.Load():
		cause = r.qp.explain(r.life.Load())
	}
	if cause != nil { // what had arrived did
		r.drain()
		return class(WCFlushed, cause)
	}
	return nil
}

func (r *Receiver) drain() {
	r.router.hold()
	defer r.router.pollLock.Release()
	r.router.pollAll()
}

// wait waits until there may be a message, or the end.
func (r *Receiver) wait(ctx context.Context) error {
	rt := r.router
	r.waiting.Add(1)
	defer func() {
		r.waiting.Add(-1)
		if r.something() { // the token may have been for another
			r.nudge()
		}
	}()
	if r.something() {
		return nil
	}
	if rt.pollLock.Try() || rt.pollLock.Take(r.wake, ctx.Done()) {
		if r.something() {
			rt.pollLock.Release()
			return nil
		}
		if err := rt.look(ctx); err != nil && ctx.Err() == nil {
			rt.broken(err)
			return err
		}
	}
	if r.something() {
		return nil
	}
	return ctx.Err()
}

// something reports whether there is a reason to look.
func (r *Receiver) something() bool {
	return r.some.Load() > 0 || r.closed.Load() || r.flushed.Load() || r.reset.Load() || r.qp.terminal.dead.Load()
}

// notify wakes all waiting goroutines, after the end.
func (r *Receiver) notify() {
	for pause := backoff.New(20*time.Microsecond, 5*time.Millisecond); r.waiting.Load() > 0 && r.something(); pause.Sleep() {
		r.nudge()
		r.router.cq.wake()
	}
}
