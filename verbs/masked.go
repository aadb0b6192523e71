package verbs

import (
	"context"
	"errors"
	"fmt"
)

// MaskedCmpSwap compares some bits of a word and, if they are equal, replaces
// others:
//
//	if (word ^ Compare) & CompareMask == 0 {
//		word = word &^ SwapMask | Swap & SwapMask
//	}
type MaskedCmpSwap struct {
	Compare, CompareMask uint64
	Swap, SwapMask       uint64
}

// MaskedFetchAdd adds to each field of a word by itself. A bit of Boundary marks
// the highest bit of a field: the carry out of it is dropped. Bit 63 (31) is a
// boundary in any case. With all bits set the sum is an exclusive or.
type MaskedFetchAdd struct {
	Add, Boundary uint64
}

// maskedOp is one masked atomic in the form that mlx5 takes.
type maskedOp struct {
	add         bool
	bits32      bool
	operand     uint64 // added, or swapped in
	boundary    uint64
	compare     uint64
	compareMask uint64
	swapMask    uint64
}

func (o MaskedCmpSwap) op() maskedOp {
	return maskedOp{operand: o.Swap, swapMask: o.SwapMask, compare: o.Compare, compareMask: o.CompareMask}
}

func (o MaskedFetchAdd) op() maskedOp {
	return maskedOp{add: true, operand: o.Add, boundary: o.Boundary}
}

// size returns the length of the word in bytes.
func (o maskedOp) size() int {
	if o.bits32 {
		return 4
	}
	return 8
}

// apply is what the operation makes of a word of 64 bits, and whether it
// changes anything: the meaning of masked atomics.
func (o maskedOp) apply(old uint64) (word uint64, done bool) {
	if o.add {
		// Below the boundaries fields add as they are; the highest bits add
		// without a carry.
		high := o.boundary | 1<<63
		if o.bits32 {
			high |= 1 << 31
		}
		return (old&^high + o.operand&^high) ^ (old^o.operand)&high, true
	}
	if (old^o.compare)&o.compareMask != 0 {
		return old, false
	}
	return old&^o.swapMask | o.operand&o.swapMask, true
}

// in64 is a 32-bit operation on the word of 64 bits around its own; shift is 32
// for the half with the higher bits. The other half is left alone.
func (o maskedOp) in64(shift uint) maskedOp {
	const half = 0xffffffff
	w := maskedOp{add: o.add, operand: o.operand & half << shift, boundary: o.boundary & half << shift, compare: o.compare & half << shift,
		compareMask: o.compareMask & half << shift, swapMask: o.swapMask & half << shift}
	// Nothing may be carried into the upper half, from the lower one.
	w.boundary |= 1 << 31
	return w
}

// ErrContended: a masked atomic lost against others more often than allowed.
var ErrContended = errors.New("contended")

// MaskedConfig configures masked atomics. The zero value is fine.
type MaskedConfig struct {
	// Retries is how often an emulated operation is tried again when the word
	// changed under it; 0 means without end, or until the context is done.
	Retries int
}

// Masked does masked atomics on peers' words, one at a time, through a [Requester]:
// natively if its queue pair was made with [OpMasked], elsewhere by a READ and CMP_SWAPs.
//
// # The emulation
//
// It reads the word, computes the new value, and exchanges the two by CMP_SWAP. If the
// word has changed meanwhile, the CMP_SWAP returns the changed value, and it goes on from
// there. An operation that compares all bits needs no READ; if its comparison fails, it
// needs no CMP_SWAP. So it costs two round trips without interference, and one more for
// each change of the word by others. It is lock-free: it fails to progress only because
// another operation did. It is atomic against all other RDMA atomics on the word, masked or
// not, as far as the device's atomics are ([AtomicCap]); native and emulated ones may be
// mixed on one word only if the devices' atomicity is common ([AtomicGlob]).
//
// A word that took the values A, B, A between READ and CMP_SWAP is taken for
// unchanged, which is right: the operation then took place at the end.
//
// 32-bit operations are done on the aligned 8 bytes around the word, all of
// which must be accessible. The peer must have this host's byte order.
type Masked struct {
	r       *Requester
	mr      *MR
	off     int
	native  bool
	retries int
	left    *InFlightError // that has the memory until it is done
	result  [1]SGE         // that memory, of a native operation
	tries   int            // of the last operation
}

// NewMasked returns a Masked that posts through r, which the program may use as well. The
// 8 bytes at offset off of mr belong to the result: the program must not use them. A Masked
// is for one goroutine at a time. If a call's context ends while the device has its request,
// it returns an [InFlightError], and the next call waits for that request first.
func NewMasked(r *Requester, mr *MR, off int, cfg MaskedConfig) (*Masked, error) {
	m := &Masked{r: r, mr: mr, off: off, native: r.qp.ops&OpMasked != 0, retries: cfg.Retries}
	switch {
	case mr.SGE(off, 8).Length > maxSGELength || off%8 != 0:
		return nil, opError("make masked atomics on", r.qp.life.Label, ErrRange, "8 aligned bytes at offset ", off)
	case cfg.Retries < 0:
		return nil, opError("make masked atomics on", r.qp.life.Label, ErrAttributes, "Retries ", cfg.Retries)
	}
	return m, nil
}

// Native reports whether the device does the operations itself.
func (m *Masked) Native() bool { return m.native }

// Tries is how many CMP_SWAPs the last operation took; 0 if none was needed,
// 1 for a native one.
func (m *Masked) Tries() int { return m.tries }

// CmpSwap returns the word before the operation. The swap took place if the compared bits
// of that word are equal to op's.
func (m *Masked) CmpSwap(ctx context.Context, at Remote, op MaskedCmpSwap) (old uint64, err error) {
	return m.do(ctx, at, op.op())
}

// FetchAdd returns the word before the operation.
func (m *Masked) FetchAdd(ctx context.Context, at Remote, op MaskedFetchAdd) (old uint64, err error) {
	return m.do(ctx, at, op.op())
}

// CmpSwap32 is CmpSwap on a 4-byte aligned word.
func (m *Masked) CmpSwap32(ctx context.Context, at Remote, op MaskedCmpSwap) (old uint32, err error) {
	return m.do32(ctx, at, op.op())
}

// FetchAdd32 is FetchAdd on a 4-byte aligned word.
func (m *Masked) FetchAdd32(ctx context.Context, at Remote, op MaskedFetchAdd) (old uint32, err error) {
	return m.do32(ctx, at, op.op())
}

// AddField adds to the field of width bits from bit shift on, and leaves the other bits
// alone. It returns the old value of the field.
func (m *Masked) AddField(ctx context.Context, at Remote, shift, width int, add uint64) (old uint64, err error) {
	if shift < 0 || width < 1 || shift+width > 64 {
		return 0, opError("add to field of", m.r.qp.life.Label, ErrAttributes, fmt.Sprintf("%d bits from bit %d", width, shift))
	}
	mask := ^uint64(0) >> (64 - width)
	word, err := m.FetchAdd(ctx, at, MaskedFetchAdd{Add: add & mask << shift, Boundary: 1 << (shift + width - 1)})
	return word >> shift & mask, err
}

func (m *Masked) do32(ctx context.Context, at Remote, op maskedOp) (uint32, error) {
	if at.Addr%4 != 0 && at != badRemote {
		return 0, opError("do masked atomic on", m.r.qp.life.Label, ErrRange, "a 4-byte aligned word is needed")
	}
	if m.native {
		op.bits32 = true
		if err := m.post(ctx, op, at); err != nil {
			return 0, err
		}
		return bigEndian32(nativeUint32(m.mr.buf[m.off:])), nil
	}
	shift := uint(0)
	if at.Addr%8 != 0 == littleEndian {
		shift = 32
	}
	old, err := m.emulate(ctx, Remote{Addr: at.Addr &^ 7, RKey: at.RKey}, op.in64(shift))
	return uint32(old >> shift), err
}

func (m *Masked) do(ctx context.Context, at Remote, op maskedOp) (uint64, error) {
	if !m.native {
		return m.emulate(ctx, at, op)
	}
	if err := m.post(ctx, op, at); err != nil {
		return 0, err
	}
	return m.mr.Load64(m.off)
}

// emulate is the loop described at [Masked]. Each iteration is one round trip.
func (m *Masked) emulate(ctx context.Context, at Remote, op maskedOp) (uint64, error) {
	m.tries = 0
	old, fresh := op.compare, false // an operation that compares all bits says itself what must be there
	if at.Addr%8 != 0 && at != badRemote {
		return 0, opError("do masked atomic on", m.r.qp.life.Label, ErrRange, "an 8-byte aligned word is needed")
	}
	if op.add || op.compareMask != ^uint64(0) {
		if err := m.awaitMemory(ctx); err != nil {
			return 0, err
		}
		if err := m.leave(m.r.Read(ctx, at, m.mr.SGE(m.off, 8))); err != nil {
			return 0, err
		}
		v, err := m.mr.Load64(m.off)
		if err != nil {
			return 0, err
		}
		old, fresh = v, true
	}
	for {
		word, done := op.apply(old)
		if fresh && (!done || word == old) {
			return old, nil
		}
		if m.retries > 0 && m.tries > m.retries {
			return 0, opError("do masked atomic on", m.r.qp.life.Label, ErrContended, m.tries, " CMP_SWAPs failed")
		}
		m.tries++
		found, err := m.r.CmpSwap(ctx, at, old, word)
		if err != nil {
			return 0, err
		}
		if found == old {
			return old, nil
		}
		old, fresh = found, true
	}
}

// post makes the device do an operation. The result goes to the memory.
func (m *Masked) post(ctx context.Context, op maskedOp, at Remote) error {
	if err := m.awaitMemory(ctx); err != nil {
		return err
	}
	m.tries = 1
	m.result[0] = m.mr.SGE(m.off, op.size())
	w := WR{Op: WRMaskedCmpSwap, Remote: at, Local: m.result[:], Value: op.operand, Mask: op.swapMask, Compare: op.compare, CompareMask: op.compareMask}
	if op.add {
		w.Op, w.Mask = WRMaskedFetchAdd, op.boundary
	}
	return m.leave(m.r.Do(ctx, w))
}

// awaitMemory waits until the memory is not the device's any more.
func (m *Masked) awaitMemory(ctx context.Context) error {
	if m.left == nil {
		return nil
	}
	select {
	case <-m.left.Done():
		m.left = nil
		return nil
	case <-ctx.Done():
		return opError("do masked atomic on", m.r.qp.life.Label, ctx.Err(), "the device still has the one before")
	}
}

// leave returns err, the end of a request to the memory, and remembers one that still has it.
func (m *Masked) leave(err error) error {
	errors.As(err, &m.left)
	return err
}
