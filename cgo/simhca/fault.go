//go:build simhca && linux && cgo

package simhca

/*
#include <stdlib.h>
#include "fault.h"
*/
import "C"

import (
	"syscall"
	"time"
	"unsafe"
)

// Fail makes a request of a queue pair end with a status (enum ibv_wc_status) and
// without effect: the next one, or the one after so many others.
func Fail(device string, qpn uint32, after int, status uint32) error {
	return named(device, func(name *C.char) C.int {
		return C.simhca_fail(name, C.uint32_t(qpn), C.uint32_t(after), C.int(status))
	})
}

// Break makes a queue pair fail by itself, as by an error of the device; that of a
// target makes the target die.
func Break(device string, qpn uint32) error {
	return named(device, func(name *C.char) C.int { return C.simhca_break(name, C.uint32_t(qpn)) })
}

// Hold makes the requests of a queue pair wait, and so their completions.
func Hold(device string, qpn uint32, d time.Duration) error {
	return named(device, func(name *C.char) C.int { return C.simhca_hold(name, C.uint32_t(qpn), C.uint64_t(d.Microseconds())) })
}

// Remove removes a device, also for programs that have it open.
func Remove(device string) error {
	return named(device, func(name *C.char) C.int { return C.simhca_remove(name) })
}

// Awaited reports whether other processes of the fabric wait for a process, if it is stopped now: until
// it continues they change no objects that it looks at, or execute no requests to it, or no atomics.
func Awaited(pid int) bool { return C.simhca_awaited(C.int(pid)) != 0 }

func named(device string, call func(*C.char) C.int) error {
	name := C.CString(device)
	defer C.free(unsafe.Pointer(name))
	if errno := call(name); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
