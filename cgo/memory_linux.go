//go:build cgo

package cgo

/*
#include "shim.h"
#include "driver.h"

static int gv_bind_mw(uintptr_t qp, uintptr_t mw, uint64_t id, uint32_t flags, uintptr_t mr, uint64_t addr,
		      uint64_t length, uint32_t access)
{
	struct ibv_mw_bind b = {
		.wr_id = id, .send_flags = flags,
		.bind_info = { .mr = (struct ibv_mr *)mr, .addr = addr, .length = length, .mw_access_flags = access },
	};

	return ibv_bind_mw((struct ibv_qp *)qp, (struct ibv_mw *)mw, &b);
}

static int gv_advise_mr(uintptr_t pd, uint32_t advice, uint32_t flags, uint64_t addr, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	return ibv_advise_mr((struct ibv_pd *)pd, advice, flags, &sge, 1);
}

static int gv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return gv_driver()->rereg_mr(mr, flags, pd, addr, length, access);
}
*/
import "C"

import "unsafe"

func (h MW) c() *C.struct_ibv_mw { return ptr[C.struct_ibv_mw](h) }

// AllocMW makes a memory window of that type and returns its first key.
func AllocMW(pd PD, typ uint32) (MW, uint32, error) {
	p, err := C.ibv_alloc_mw(pd.c(), typ)
	mw, err := handle[MW](p, err)
	if err != nil {
		return 0, 0, err
	}
	return mw, uint32(p.rkey), nil
}

func DeallocMW(mw MW) error {
	r, err := C.ibv_dealloc_mw(mw.c())
	return status(r, err)
}

// BindMW posts the binding of a type 1 window and returns the new key. A length
// of 0 ends a binding.
func BindMW(qp QP, mw MW, id uint64, flags uint32, mr MR, addr, length uint64, access uint32) (uint32, error) {
	r, err := C.gv_bind_mw(C.uintptr_t(qp), C.uintptr_t(mw), C.uint64_t(id), C.uint32_t(flags), C.uintptr_t(mr),
		C.uint64_t(addr), C.uint64_t(length), C.uint32_t(access))
	return uint32(mw.c().rkey), status(r, err)
}

// RegDMABuf registers length bytes of a dmabuf, from offset on; iova is the
// address by which work requests name the first of them.
func RegDMABuf(pd PD, offset uint64, length int, iova uint64, fd int, access uint32) (mr MR, lkey, rkey uint32, err error) {
	p, err := C.ibv_reg_dmabuf_mr(pd.c(), C.uint64_t(offset), C.size_t(length), C.uint64_t(iova), C.int(fd), C.int(access))
	mr, err = handle[MR](p, err)
	if err != nil {
		return 0, 0, 0, err
	}
	return mr, uint32(p.lkey), uint32(p.rkey), nil
}

// ReregMR changes a registration as flags say (enum ibv_rereg_mr_flags). code
// is libibverbs' own: below -3 the region is lost.
func ReregMR(mr MR, flags uint32, pd PD, addr uintptr, length int, access uint32) (lkey, rkey uint32, code int, err error) {
	p := mr.c()
	r, err := C.gv_rereg_mr(p, C.int(flags), pd.c(), *(*unsafe.Pointer)(unsafe.Pointer(&addr)), C.size_t(length), C.int(access))
	if r == 0 {
		return uint32(p.lkey), uint32(p.rkey), 0, nil
	}
	return uint32(p.lkey), uint32(p.rkey), int(r), orEINVAL(err)
}

// AdviseMR advises the device of the use of memory registered on demand
// (enum ib_uverbs_advise_mr_advice).
func AdviseMR(pd PD, advice, flags uint32, sge SGE) error {
	r, err := C.gv_advise_mr(C.uintptr_t(pd), C.uint32_t(advice), C.uint32_t(flags), C.uint64_t(sge.Addr),
		C.uint32_t(sge.Length), C.uint32_t(sge.LKey))
	return status(r, err)
}
