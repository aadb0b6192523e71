//go:build linux && cgo

package standin

/*
#include <stdlib.h>
#include "recorder.h"

static void recorder_set_imm(struct ibv_wc *wc, uint32_t imm) { wc->imm_data = htobe32(imm); }
*/
import "C"

import (
	"reflect"
	"strings"
	"syscall"
	"unsafe"

	"github.com/goverbs/goverbs/cgo"
)

// Record puts queue pairs in the place of libmlx5 and libefa that write down
// each call, until stop is called. One at a time.
func Record() (stop func()) {
	table := C.uintptr_t(cgo.DriverTable())
	flush, _ := reflect.TypeFor[C.struct_ibv_qp_ex]().FieldByName("wr_flush")
	if C.recorder_install(table, C.size_t(flush.Offset)) == 0 {
		panic("standin: recording already")
	}
	return func() { C.recorder_remove(table) }
}

// Context is a device context that only recording queue pairs may see.
func Context() cgo.Context { return cgo.Context(C.recorder_context()) }

// Recorded is what was called since the last time, a line each.
func Recorded() string { return strings.TrimSpace(C.GoString(C.recorder_take())) }

// Complete ends a send of the queue pair of that number with a status (enum
// ibv_wc_status). The first queue pair since [Record] is 0x4711, the next one
// 0x4712, and so on.
func Complete(qpn uint32, id uint64, status uint32) {
	done(qpn, C.struct_ibv_wc{wr_id: C.uint64_t(id), status: status, qp_num: C.uint32_t(qpn)})
}

// CompleteAs ends a send with success and an opcode (enum ibv_wc_opcode).
func CompleteAs(qpn uint32, id uint64, opcode uint32) {
	done(qpn, C.struct_ibv_wc{wr_id: C.uint64_t(id), opcode: opcode, qp_num: C.uint32_t(qpn)})
}

// Receive ends a receive of length bytes, with an immediate (host byte order)
// or nil.
func Receive(qpn uint32, id uint64, length int, imm *uint32) {
	wc := C.struct_ibv_wc{wr_id: C.uint64_t(id), opcode: C.IBV_WC_RECV, qp_num: C.uint32_t(qpn), byte_len: C.uint32_t(length)}
	var value uint32
	if imm != nil {
		wc.wc_flags, value = C.IBV_WC_WITH_IMM, *imm
	}
	C.recorder_set_imm(&wc, C.uint32_t(value))
	done(qpn, wc)
}

// ReceiveFrom ends the receive of a datagram of EFA. Number is that of the address
// handle to the sender, or 0xffff if there is none: then the completion has its GID.
func ReceiveFrom(qpn uint32, id uint64, number uint16, gid [16]byte) {
	wc := C.struct_ibv_wc{wr_id: C.uint64_t(id), opcode: C.IBV_WC_RECV, qp_num: C.uint32_t(qpn), byte_len: 64, src_qp: 0x55, slid: C.uint16_t(number)}
	if C.recorder_receive_from(C.uint32_t(qpn), wc, unsafe.Pointer(&gid)) == 0 {
		panic("standin: no such queue pair, or its completion queue is full")
	}
}

func done(qpn uint32, wc C.struct_ibv_wc) {
	if C.recorder_complete(C.uint32_t(qpn), wc) == 0 {
		panic("standin: no such queue pair, or its completion queue is full")
	}
}

// SetState makes a query of that queue pair return a state (enum ibv_qp_state).
func SetState(qpn, state uint32) {
	if C.recorder_set_state(C.uint32_t(qpn), C.uint32_t(state)) == 0 {
		panic("standin: no such queue pair")
	}
}

// Refuse makes the next call of that name, as [Recorded] has it, fail.
func Refuse(call string, errno syscall.Errno) {
	name := C.CString(call)
	defer C.free(unsafe.Pointer(name))
	C.recorder_refuse(name, C.int(errno))
}

// Expected is a list of calls as tests write it, in the form of Recorded:
// without the indentation of the source.
func Expected(want string) string {
	var lines []string
	for l := range strings.Lines(strings.TrimSpace(want)) {
		lines = append(lines, strings.TrimPrefix(strings.TrimRight(l, "\n"), "\t\t"))
	}
	return strings.Join(lines, "\n")
}
