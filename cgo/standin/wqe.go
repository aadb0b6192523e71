//go:build linux && cgo

package standin

/*
#include "wqe.h"
*/
import "C"

import "unsafe"

// Masked says what a work queue entry of a masked atomic is to have in it.
type Masked struct {
	Add, Bits32, Signaled, Fence bool
	QPN, RKey, LKey              uint32
	Addr, Result                 uint64
	Operand, Boundary            uint64
	Compare                      uint64
	SwapMask, CompareMask        uint64

	DCT, Stream uint32 // of a DCI, or 0
	DCKey       uint64
	AV          [48]byte
}

// Entry is the work queue entry as rdma-core's headers have it.
func (m Masked) Entry() []byte {
	in := C.struct_standin_masked{
		add: cInt(m.Add), bits32: cInt(m.Bits32), signaled: cInt(m.Signaled), fence: cInt(m.Fence),
		qpn: C.uint32_t(m.QPN), rkey: C.uint32_t(m.RKey), lkey: C.uint32_t(m.LKey), addr: C.uint64_t(m.Addr), result: C.uint64_t(m.Result),
		operand: C.uint64_t(m.Operand), boundary: C.uint64_t(m.Boundary), compare: C.uint64_t(m.Compare),
		swap_mask: C.uint64_t(m.SwapMask), compare_mask: C.uint64_t(m.CompareMask),
		dct: C.uint32_t(m.DCT), stream: C.uint32_t(m.Stream), dc_key: C.uint64_t(m.DCKey),
	}
	copy((*[48]byte)(unsafe.Pointer(&in.av))[:], m.AV[:])
	var out [128]byte
	n := C.standin_masked_wqe(&in, (*C.uint8_t)(&out[0]))
	return out[:n:n]
}

func cInt(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
