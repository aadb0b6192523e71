package verbs

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/cgo"
)

// Masked atomics of mlx5 are raw work queue entries, all big endian:
//
//	control 16 | [address vector 48] | remote 16 | arguments 16 or 32 | data 16
//
// (NVIDIA "Mellanox Adapters Programmer's Reference Manual", sections WQE
// formats and extended atomics; rdma-core, providers/mlx5/wqe.h.)
const (
	wqeMax = 128 // bytes of the longest, rounded up

	wqeMaskedCmpSwap  = 0x14
	wqeMaskedFetchAdd = 0x15
	opmod32           = 0x08
	opmod64           = 0x09
	wqeExtendedAV     = 1 << 31
	wqeSignaled       = 0x08 // fm_ce_se: completion wanted
	wqeFence          = 0x80 // fm_ce_se: what libmlx5 makes of IBV_SEND_FENCE (MLX5_WQE_CTRL_FENCE)
)

// maskedWQE writes the entry for one masked atomic into b, at least wqeMax
// bytes, and returns its length. to is the target of a DCI, or nil.
func maskedWQE(b []byte, qpn uint32, to *Target, flags SendFlags, op maskedOp, at Remote, result SGE) int {
	be := binary.BigEndian
	n := 16
	if to != nil {
		n += copy(b[n:], to.AH.av[:])
		be.PutUint64(b[16:], to.DCKey)
		be.PutUint32(b[24:], be.Uint32(b[24:])|to.QPN|wqeExtendedAV)
	}
	put32 := func(v uint32) { be.PutUint32(b[n:], v); n += 4 }
	put64 := func(v uint64) { be.PutUint64(b[n:], v); n += 8 }

	put64(at.Addr)
	put32(at.RKey)
	put32(0)
	opcode, opmod := uint32(wqeMaskedCmpSwap), uint32(opmod64)
	if op.add {
		opcode = wqeMaskedFetchAdd
	}
	if op.bits32 {
		opmod = opmod32
	}
	switch {
	case op.add && op.bits32:
		put32(uint32(op.operand))
		put32(uint32(op.boundary))
		put64(0)
	case op.add:
		put64(op.operand)
		put64(op.boundary)
	case op.bits32:
		put32(uint32(op.operand))
		put32(uint32(op.compare))
		put32(uint32(op.swapMask))
		put32(uint32(op.compareMask))
	default:
		put64(op.operand)
		put64(op.compare)
		put64(op.swapMask)
		put64(op.compareMask)
	}
	put32(result.Length)
	put32(result.LKey)
	put64(result.Addr)

	be.PutUint32(b[0:], opmod<<24|opcode)
	be.PutUint32(b[4:], qpn<<8|uint32(n/16))
	be.PutUint32(b[8:], 0)
	if to != nil {
		be.PutUint16(b[9:], uint16(to.Stream))
	}
	if flags&Signaled != 0 {
		b[11] |= wqeSignaled
	}
	if flags&Fence != 0 {
		b[11] |= wqeFence
	}
	be.PutUint32(b[12:], 0)
	return n
}

// Raw adds a work queue entry of mlx5 as the device takes it: control segment
// first, big endian, at most 128 bytes. The provider fills in its index. The
// queue pair must be made with [OpMasked]. The bytes are copied. It completes
// visibly if it says so itself, or by [Signaled] or [QPConfig.SignalAll].
func (b *Batch) Raw(id uint64, flags SendFlags, entry []byte) {
	switch {
	case b.qp.ops&OpMasked == 0:
		b.fail(ErrUnsupported, "the queue pair was made without OpMasked")
		return
	case len(entry) < 16 || len(entry) > wqeMax || len(entry)%16 != 0 || int(entry[7]&0x3f)*16 != len(entry):
		b.fail(ErrAttributes, len(entry), " bytes; an entry has 16 to 128, as many as its control segment says")
		return
	}
	i := b.n
	if w := b.next(id, cgo.WRRaw, flags&^Inline, Remote{}, nil); w != nil {
		slot := b.slot(i)
		copy(slot, entry)
		if b.signals(flags) {
			slot[11] |= wqeSignaled
		}
		w.SetRDMA(b.chain.InlineAt+uint64(i*b.chain.MaxInline), 0)
	}
}

// signals reports whether a request completes visibly, which the provider sees to
// for all requests but raw entries.
func (b *Batch) signals(flags SendFlags) bool { return flags&Signaled != 0 || b.qp.sigAll }

// masked adds a masked atomic as a raw entry, which lies in the inline memory
// of the request until it is posted.
func (b *Batch) masked(id uint64, flags SendFlags, op maskedOp, at Remote, result SGE) {
	if err := b.wrongMasked(op, at, result); err != nil {
		b.keep(err)
		return
	}
	var to *Target
	if b.qp.typ == DCI {
		if len(b.dests) == 0 {
			b.fail(ErrAttributes, "a request has no target: call SetTarget first")
			return
		}
		to = &b.dests[len(b.dests)-1].t
	}
	i := b.n
	flags &^= Inline
	if b.signals(flags) {
		flags |= Signaled
	}
	w := b.next(id, cgo.WRRaw, flags, at, nil)
	if w == nil {
		return
	}
	maskedWQE(b.slot(i), b.qp.num, to, flags, op, at, result)
	w.SetRDMA(b.chain.InlineAt+uint64(i*b.chain.MaxInline), 0)
}

// wrongMasked is wrong for a masked atomic.
func (b *Batch) wrongMasked(op maskedOp, at Remote, result SGE) error {
	switch {
	case b.qp.ops&OpMasked == 0:
		return b.addError(ErrUnsupported, "the queue pair was made without OpMasked")
	case at == badRemote:
		return b.wrong(opCmpSwap, 0, at, nil)
	}
	return b.wrongAtomic(at, result, op.size())
}

// slot returns the inline memory of a request.
func (b *Batch) slot(i int) []byte { return b.chain.Inline[i*b.chain.MaxInline:][:b.chain.MaxInline] }

// signal makes a request complete visibly.
func (b *Batch) signal(i int) {
	w := &b.wrs[i]
	w.Flags |= uint32(Signaled)
	if w.Opcode == cgo.WRRaw {
		b.slot(i)[11] |= wqeSignaled
	}
}
