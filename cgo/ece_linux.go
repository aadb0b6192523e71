//go:build cgo

package cgo

/*
#include "driver.h"

static int gv_query_ece(uintptr_t qp, struct ibv_ece *e) { return gv_driver()->query_ece((struct ibv_qp *)qp, e); }
static int gv_set_ece(uintptr_t qp, struct ibv_ece *e) { return gv_driver()->set_ece((struct ibv_qp *)qp, e); }
*/
import "C"

// QueryECE is ibv_query_ece.
func QueryECE(qp QP) (vendor, options uint32, err error) {
	var e C.struct_ibv_ece
	r, err := C.gv_query_ece(C.uintptr_t(qp), &e)
	return uint32(e.vendor_id), uint32(e.options), status(r, err)
}

// SetECE is ibv_set_ece.
func SetECE(qp QP, vendor, options uint32) error {
	e := C.struct_ibv_ece{vendor_id: C.uint32_t(vendor), options: C.uint32_t(options)}
	r, err := C.gv_set_ece(C.uintptr_t(qp), &e)
	return status(r, err)
}
