//go:build linux && cgo

// Package standin has queue pairs that lead nowhere, and loops in C, for the
// tests and benchmarks of this module: what a call through Go costs shows only
// against the same call in C, on a device that costs nothing.
package standin

/*
#cgo LDFLAGS: -libverbs -lrdmacm
#include "standin.h"
*/
import "C"

import (
	"errors"
	"net/netip"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/cgo"
)

// Pair is a queue pair and its completion queue with a post and a poll that do
// nothing: a post accepts everything, a poll returns as many successes as were
// asked for and writes none of them.
type Pair struct{ p *C.struct_standin }

// New makes a stand-in; free it with Close.
func New() (*Pair, error) {
	p := C.standin_new()
	if p == nil {
		return nil, errors.New("standin: out of memory")
	}
	return &Pair{p}, nil
}

func (s *Pair) Close() { C.free(unsafe.Pointer(s.p)) }

func (s *Pair) QP() cgo.QP { return cgo.QP(uintptr(unsafe.Pointer(&s.p.qp))) }

func (s *Pair) CQ() cgo.CQ { return cgo.CQ(uintptr(unsafe.Pointer(&s.p.cq))) }

// Fail makes the next posts refuse the work request of that index with an
// errno, or a negative one as erdma does; a negative index ends it.
func (s *Pair) Fail(index int, errno int) {
	s.p.fail_at = C.int(index)
	s.p.fail_errno = C.int(errno)
}

// Name makes polls write the numbers of the work requests that the last post, from one
// batch, was of: as many as there were in it may be polled.
func (s *Pair) Name() { s.p.named = 1 }

// FailPolls makes polls return this instead of a count; 0 ends it.
func (s *Pair) FailPolls(status int) { s.p.poll_error = C.int(status) }

// CQ is an extended completion queue for [cgo.PollExtended] and [cgo.PollRXE].
type CQ struct{ c *C.struct_standin_cq }

// NewCQ makes a queue with so many successes, after which polls return err as the
// provider gives it: ENOENT says that the queue is empty. Free it with Close.
func NewCQ(completions, err int) (*CQ, error) {
	c := C.standin_cq_new(C.int(completions), C.int(err))
	if c == nil {
		return nil, errors.New("standin: out of memory")
	}
	return &CQ{c}, nil
}

func (c *CQ) Close() { C.free(unsafe.Pointer(c.c)) }

func (c *CQ) CQ() cgo.CQ { return cgo.CQ(uintptr(unsafe.Pointer(&c.c.cq))) }

// Left is how many completions are in the queue.
func (c *CQ) Left() int { return int(c.c.left) }

// Misused is how many calls came out of order: a poll that is ended although it
// did not start, started twice, or not ended.
func (c *CQ) Misused() int { return int(c.c.bad + c.c.polling) }

// PostPollLoop is the C loop that the Go API is measured against: it fills
// batch WRITEs, posts them, polls batch completions and looks at their status,
// rounds times. It returns the time that it took.
func (s *Pair) PostPollLoop(rounds, batch int) time.Duration {
	return time.Duration(C.standin_post_poll(s.p, C.int(rounds), C.int(batch)))
}

// ReadLoop does n READs of size bytes, one at a time, on a real queue pair and
// stores how long each took, in nanoseconds, in lat. extra loop turns of
// arithmetic go into each one: the known cost of a positive control.
func ReadLoop(qp cgo.QP, cq cgo.CQ, local cgo.SGE, remote uint64, rkey uint32, extra int, lat []int64) error {
	r := C.standin_read_loop(C.uintptr_t(qp), C.uintptr_t(cq), C.uint64_t(local.Addr), C.uint32_t(local.Length),
		C.uint32_t(local.LKey), C.uint64_t(remote), C.uint32_t(rkey), C.int(extra),
		(*C.int64_t)(unsafe.Pointer(unsafe.SliceData(lat))), C.int(len(lat)))
	if r != 0 {
		return errors.New("standin: C loop: post, poll or completion failed")
	}
	return nil
}

// ConnectLoop makes n connections to a listener at an IPv4 address through
// librdmacm, in C, with a pause before each, and stores how long each took until
// it was established, in nanoseconds, in lat.
func ConnectLoop(to netip.AddrPort, pause time.Duration, lat []int64) error {
	address := C.CString(to.Addr().String())
	defer C.free(unsafe.Pointer(address))
	if C.standin_connect_loop(address, C.uint16_t(to.Port()), C.int64_t(pause), (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(lat))), C.int(len(lat))) != 0 {
		return errors.New("standin: C loop: a connection failed")
	}
	return nil
}

// ConnectServer accepts connections at an IPv4 address through librdmacm, in C,
// until there is an error.
func ConnectServer(at netip.AddrPort) error {
	address := C.CString(at.Addr().String())
	defer C.free(unsafe.Pointer(address))
	C.standin_connect_server(address, C.uint16_t(at.Port()))
	return errors.New("standin: C server: failed")
}

// FlowLabelToUDPSourcePort is libibverbs' formula.
func FlowLabelToUDPSourcePort(label uint32) uint16 {
	return uint16(C.ibv_flow_label_to_udp_sport(C.uint32_t(label)))
}

// Spin does as many iterations of the loop that extra in [ReadLoop] adds, and returns
// how long they took.
func Spin(turns int) time.Duration { return time.Duration(C.standin_spin(C.int64_t(turns))) }

// LeftOut is how many calls that give up the CPU do nothing after one that was slow, before which
// the last one had so many left out.
func LeftOut(before int) int { return int(C.standin_left_out(C.int(before))) }
