//go:build linux && cgo

package standin

/*
#include "recorder.h"
*/
import "C"

import (
	"strings"

	"github.com/goverbs/goverbs/cgo"
)

// Record puts queue pairs in the place of libmlx5 and libefa that write down
// each call, until the function that it answers is called. One at a time.
func Record() (stop func()) {
	table := C.uintptr_t(cgo.DriverTable())
	C.recorder_install(table)
	return func() { C.recorder_remove(table) }
}

// Context is a device context that only recording queue pairs may see.
func Context() cgo.Context { return cgo.Context(C.recorder_context()) }

// Recorded is what was called since the last time, a line each.
func Recorded() string { return strings.TrimSpace(C.GoString(C.recorder_take())) }
