//go:build cgo

package cgo

/*
#cgo LDFLAGS: -libverbs
#cgo noescape gv_post_send_at
#cgo nocallback gv_post_send_at
#cgo noescape gv_post_recv_at
#cgo nocallback gv_post_recv_at
#cgo noescape gv_poll
#cgo nocallback gv_poll
#cgo noescape gv_poll_extended
#cgo nocallback gv_poll_extended
#cgo noescape gv_wait_step
#cgo nocallback gv_wait_step
#cgo noescape gv_post_poll
#cgo nocallback gv_post_poll
#cgo noescape gv_boottime
#cgo nocallback gv_boottime
#cgo noescape gv_post_all
#cgo nocallback gv_post_all
#include "shim.h"
*/
import "C"

import (
	"math"
	"syscall"
	"unsafe"
)

// Data path. wcs must not be empty.

// PostSend posts the first n work requests of the chain and returns how many
// the queue took.
func PostSend(qp QP, path PostPath, c *SendChain, n int) (int, error) {
	return posted(C.gv_post_send_at(C.uintptr_t(qp), C.uintptr_t(path), at(&c.WRs[0]), C.uint32_t(n)))
}

// PostRecv posts the first n receives of the chain.
func PostRecv(qp QP, c *RecvChain, n int) (int, error) {
	return posted(C.gv_post_recv_at(C.uintptr_t(qp), 0, at(&c.WRs[0]), C.uint32_t(n)))
}

// PostSRQRecv posts the first n receives of the chain to a shared queue.
func PostSRQRecv(srq SRQ, c *RecvChain, n int) (int, error) {
	return posted(C.gv_post_recv_at(C.uintptr_t(srq), 1, at(&c.WRs[0]), C.uint32_t(n)))
}

// PostAll posts each of the chains, whatever becomes of the others, in the order given.
// The slice must not be empty; [Posting.Posted] returns the result of each.
func PostAll(ps []Posting) {
	C.gv_post_all((*C.struct_gv_posting)(unsafe.Pointer(&ps[0])), C.int(len(ps)))
}

// PollCQ polls up to spins+1 times until at least one completion is there, and
// with [Yield] gives up the CPU in between.
func PollCQ(cq CQ, path PollPath, wcs []WC, spins uint32) (int, error) {
	return polled(C.gv_poll(C.uintptr_t(cq), C.uintptr_t(path), cWC(wcs), C.int(len(wcs)), C.uint32_t(spins)))
}

// PollCQEx polls an extended queue once; fields are those that it was made for.
func PollCQEx(cq CQ, path PollPath, fields uint64, wcs []WCEx) (int, error) {
	return polled(C.gv_poll_extended(C.uintptr_t(cq), C.uintptr_t(path), C.uint64_t(fields), unsafe.Pointer(&wcs[0]), C.sizeof_struct_gv_wc_ex, C.int(len(wcs))))
}

// WaitStep is one step of waiting on a completion channel: it polls, takes the
// event that was requested, if armed says so, requests the next one and polls
// again. Without completions and without an error an event is on its way.
func WaitStep(ch CompChannel, cq CQ, path PollPath, armed *bool, notify Notify, wcs []WC) (int, error) {
	a := cBool(*armed)
	n, err := polled(C.gv_wait_step(C.uintptr_t(ch), C.uintptr_t(cq), C.uintptr_t(path), &a, C.uint32_t(notify), cWC(wcs), C.int(len(wcs))))
	*armed = a != 0
	return n, err
}

// PostPoll posts the first n work requests and polls cq up to spins+1 times, for at most 1<<15-1 completions. times may be nil.
func PostPoll(qp QP, path PostPath, c *SendChain, n int, cq CQ, poll PollPath, wcs []WC, spins uint32, times *Times) (accepted, got int, err error) {
	r := C.gv_post_poll(C.uintptr_t(qp), C.uintptr_t(path), at(&c.WRs[0]), C.uint32_t(n),
		C.uintptr_t(cq), C.uintptr_t(poll), cWC(wcs), C.int(min(len(wcs), math.MaxInt16)), C.uint32_t(spins), (*C.struct_gv_times)(unsafe.Pointer(times)))
	if errno := syscall.Errno(uint16(r)); errno != 0 {
		return int(r >> 32), 0, errno
	}
	got, err = polled(C.int(int16(r >> 16)))
	return int(r >> 32), got, err
}

// Boottime returns the time of CLOCK_BOOTTIME, in nanoseconds, or 0 if there is none.
func Boottime() int64 { return int64(C.gv_boottime()) }

// NewPollPath makes a path on which completions credit the send queues of the
// queue pairs that were made with it ([QPInit.SendPath]). It lives as long as
// the queue and those queue pairs.
func NewPollPath(how PollPath) (PollPath, error) {
	p := C.gv_cq_new(C.int(how))
	if p == nil {
		return 0, syscall.ENOMEM
	}
	return PollPath(uintptr(unsafe.Pointer(p))), nil
}

func FreePollPath(p PollPath) {
	if p > PollRXE {
		C.gv_cq_free(ptr[C.struct_gv_cq](p))
	}
}

// FreePostPath is for a queue pair that has been destroyed.
func FreePostPath(p PostPath) { C.gv_sq_free(ptr[C.struct_gv_sq](p)) }

// ResetPostPath is for a queue pair that went through RESET.
func ResetPostPath(p PostPath) {
	if p != PostPlain {
		C.gv_sq_reset(ptr[C.struct_gv_sq](p))
	}
}

// Outstanding is how many sends of a path other than [PostPlain] may still be
// under way.
func Outstanding(p PostPath) int { return int(C.gv_sq_outstanding(ptr[C.struct_gv_sq](p))) }

// OutstandingIn is how many sends that complete on a poll path may still be under way, of post
// paths other than [PostPlain].
func OutstandingIn(p PollPath) int {
	if p <= PollRXE {
		return 0
	}
	return int(C.gv_cq_outstanding(ptr[C.struct_gv_cq](p)))
}

// Callable are the operations (enum ibv_qp_create_send_ops_flags) that a path
// other than [PostPlain] has, of those asked for, and GV_OP_RAW of extended.h.
func Callable(p PostPath) uint64 { return uint64(ptr[C.struct_gv_sq](p).ops) }

// OpOf is the operation that an opcode needs.
func OpOf(opcode uint32) uint64 { return uint64(C.gv_op(C.uint32_t(opcode))) }

func at[T any](p *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(p))) }

func cWC(wcs []WC) *C.struct_ibv_wc { return (*C.struct_ibv_wc)(unsafe.Pointer(&wcs[0])) }

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func posted(r C.uint64_t) (int, error) {
	if uint32(r) != 0 {
		return int(r >> 32), syscall.Errno(uint32(r))
	}
	return int(r >> 32), nil
}

// polled turns a count into (count, nil) and a negative errno into an error: EIO
// where a provider reports a broken queue without saying more.
func polled(n C.int) (int, error) {
	if n < 0 {
		return 0, syscall.Errno(-n)
	}
	return int(n), nil
}

// NewSendChain allocates a chain of n work requests with up to maxSGE scatter
// entries and maxInline bytes of inline data each.
func NewSendChain(n, maxSGE, maxInline int) (*SendChain, error) {
	wrs := C.gv_alloc_send_wrs(C.size_t(n))
	sges := C.calloc(C.size_t(n*maxSGE), C.sizeof_struct_ibv_sge)
	inline := C.calloc(C.size_t(n*maxInline+1), 1)
	c := &SendChain{
		MaxSGE:    maxSGE,
		MaxInline: maxInline,
	}
	if wrs == nil || sges == nil || inline == nil {
		C.free(unsafe.Pointer(wrs))
		C.free(sges)
		C.free(inline)
		return nil, syscall.ENOMEM
	}
	c.WRs = unsafe.Slice((*SendWR)(unsafe.Pointer(wrs)), n)
	c.SGEs = unsafe.Slice((*SGE)(sges), n*maxSGE)
	c.Inline = unsafe.Slice((*byte)(inline), n*maxInline)
	c.InlineAt = uint64(uintptr(inline))
	for i := range c.WRs {
		c.WRs[i].SGList = uintptr(unsafe.Pointer(&c.SGEs[i*maxSGE]))
	}
	return c, nil
}

// Free releases the memory of a chain; the chain must not be used again.
func (c *SendChain) Free() {
	C.free(unsafe.Pointer(unsafe.SliceData(c.WRs)))
	C.free(unsafe.Pointer(unsafe.SliceData(c.SGEs)))
	C.free(unsafe.Pointer(unsafe.SliceData(c.Inline)))
	*c = SendChain{}
}

// NewRecvChain allocates a chain of n receives with up to maxSGE scatter
// entries each.
func NewRecvChain(n, maxSGE int) (*RecvChain, error) {
	wrs := C.gv_alloc_recv_wrs(C.size_t(n))
	sges := C.calloc(C.size_t(n*maxSGE), C.sizeof_struct_ibv_sge)
	if wrs == nil || sges == nil {
		C.free(unsafe.Pointer(wrs))
		C.free(sges)
		return nil, syscall.ENOMEM
	}
	c := &RecvChain{
		WRs:    unsafe.Slice((*RecvWR)(unsafe.Pointer(wrs)), n),
		SGEs:   unsafe.Slice((*SGE)(sges), n*maxSGE),
		MaxSGE: maxSGE,
	}
	for i := range c.WRs {
		c.WRs[i].SGList = uintptr(unsafe.Pointer(&c.SGEs[i*maxSGE]))
	}
	return c, nil
}

// Free releases the memory of a chain; the chain must not be used again.
func (c *RecvChain) Free() {
	C.free(unsafe.Pointer(unsafe.SliceData(c.WRs)))
	C.free(unsafe.Pointer(unsafe.SliceData(c.SGEs)))
	*c = RecvChain{}
}
