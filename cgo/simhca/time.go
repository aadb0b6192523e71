//go:build simhca && linux && cgo

package simhca

// #include "fault.h"
import "C"

import "time"

// Time starts or stops the clock of the devices, and returns for how long threads that polled
// have executed requests of the devices since the last call, as far as the clock ran. It slows each
// poll of an empty queue down.
func Time(on bool) time.Duration {
	flag := C.int(0)
	if on {
		flag = 1
	}
	return time.Duration(C.simhca_time(flag))
}
