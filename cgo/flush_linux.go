//go:build cgo

package cgo

/*
#include "shim.h"
*/
import "C"

import "reflect"

// rdma-core 44 has no FLUSH, and its headers have no version that the
// preprocessor could look at. But cgo translates each structure as the headers
// have it, so the translation of struct ibv_qp_ex has the field, or has not.
func init() {
	if f, ok := reflect.TypeFor[C.struct_ibv_qp_ex]().FieldByName("wr_flush"); ok {
		C.gv_flush_at = C.size_t(f.Offset)
	}
}

// FlushOffset is the offset of wr_flush in struct ibv_qp_ex, or 0 if the headers
// that this was built with are older than rdma-core 45 and have no FLUSH.
func FlushOffset() uintptr { return uintptr(C.gv_flush_at) }
