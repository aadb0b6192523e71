//go:build cgo

package cgo

/*
#include "driver.h"

static struct ibv_dm *gv_alloc_dm(uintptr_t ctx, size_t length, uint32_t log_align)
{
	struct ibv_alloc_dm_attr a = { .length = length, .log_align_req = log_align };

	return gv_driver()->alloc_dm((struct ibv_context *)ctx, &a);
}

static int gv_free_dm(struct ibv_dm *dm) { return gv_driver()->free_dm(dm); }

static struct ibv_mr *gv_reg_dm_mr(uintptr_t pd, struct ibv_dm *dm, uint64_t offset, size_t length, uint32_t access)
{
	return gv_driver()->reg_dm_mr((struct ibv_pd *)pd, dm, offset, length, access | IBV_ACCESS_ZERO_BASED);
}

static struct ibv_mr *gv_alloc_null_mr(uintptr_t pd) { return gv_driver()->alloc_null_mr((struct ibv_pd *)pd); }
*/
import "C"

import "unsafe"

func (h DM) c() *C.struct_ibv_dm { return ptr[C.struct_ibv_dm](h) }

// AllocDM allocates length bytes of memory of the device, aligned to 2^logAlign.
func AllocDM(ctx Context, length, logAlign int) (DM, error) {
	p, err := C.gv_alloc_dm(C.uintptr_t(ctx), C.size_t(length), C.uint32_t(logAlign))
	return handle[DM](p, err)
}

func FreeDM(dm DM) error {
	r, err := C.gv_free_dm(dm.c())
	return status(r, err)
}

// CopyToDM is ibv_memcpy_to_dm.
func CopyToDM(dm DM, offset uint64, from []byte) error {
	r, err := C.ibv_memcpy_to_dm(dm.c(), C.uint64_t(offset), unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from)))
	return status(r, err)
}

// CopyFromDM is ibv_memcpy_from_dm.
func CopyFromDM(to []byte, dm DM, offset uint64) error {
	r, err := C.ibv_memcpy_from_dm(unsafe.Pointer(unsafe.SliceData(to)), dm.c(), C.uint64_t(offset), C.size_t(len(to)))
	return status(r, err)
}

// RegDM registers length bytes of device memory from offset on; work requests
// name the first of them by address 0, which is how kernels want it.
func RegDM(pd PD, dm DM, offset uint64, length int, access uint32) (mr MR, lkey, rkey uint32, err error) {
	p, err := C.gv_reg_dm_mr(C.uintptr_t(pd), dm.c(), C.uint64_t(offset), C.size_t(length), C.uint32_t(access))
	mr, err = handle[MR](p, err)
	if err != nil {
		return 0, 0, 0, err
	}
	return mr, uint32(p.lkey), uint32(p.rkey), nil
}

// AllocNullMR makes a region without memory and returns its local key.
func AllocNullMR(pd PD) (MR, uint32, error) {
	p, err := C.gv_alloc_null_mr(C.uintptr_t(pd))
	mr, err := handle[MR](p, err)
	if err != nil {
		return 0, 0, err
	}
	return mr, uint32(p.lkey), nil
}
