//go:build cgo

package cgo

/*
#cgo noescape gv_modify_steps
#cgo nocallback gv_modify_steps
#include "shim.h"
#include "driver.h"

static int gv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *a)
{
	return gv_driver()->query_port(ctx, port, a);
}

static int gv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	return gv_driver()->modify_qp(qp, a, mask);
}

static int gv_modify_steps(struct ibv_qp *qp, struct ibv_qp_attr *a, const uint32_t *masks, int n, int *done)
{
	int r = 0;

	for (*done = 0; *done < n; ++*done) {
		r = gv_modify_qp(qp, &a[*done], (int)masks[*done]);
		if (r)
			break;
	}
	return r;
}

static int gv_destroy_qp(struct ibv_qp *qp)
{
	return gv_driver()->destroy_qp(qp);
}

static int gv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	return gv_driver()->query_qp(qp, a, mask, init);
}

// Of libibverbs' interface for drivers.
extern const char *ibv_get_sysfs_path(void);

static struct ibv_pd *gv_alloc_pd(struct ibv_context *ctx) { return gv_driver()->alloc_pd(ctx); }
static int gv_dealloc_pd(struct ibv_pd *pd) { return gv_driver()->dealloc_pd(pd); }

static struct ibv_mr *gv_reg_mr(uintptr_t pd, uintptr_t addr, size_t length, uint64_t iova, uint32_t access)
{
	if (iova != addr)
		return ibv_reg_mr_iova((struct ibv_pd *)pd, (void *)addr, length, iova, access);
	return gv_driver()->reg_mr((struct ibv_pd *)pd, (void *)addr, length, access);
}

static int gv_dereg_mr(struct ibv_mr *mr) { return gv_driver()->dereg_mr(mr); }

static struct ibv_comp_channel *gv_create_comp_channel(struct ibv_context *ctx)
{
	return gv_driver()->create_comp_channel(ctx);
}

static int gv_destroy_comp_channel(struct ibv_comp_channel *c) { return gv_driver()->destroy_comp_channel(c); }

static struct ibv_cq *gv_create_cq(struct ibv_context *ctx, int depth, struct ibv_comp_channel *channel, int vector)
{
	return gv_driver()->create_cq(ctx, depth, NULL, channel, vector);
}

static int gv_destroy_cq(struct ibv_cq *cq) { return gv_driver()->destroy_cq(cq); }

static struct ibv_ah *gv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a) { return gv_driver()->create_ah(pd, a); }
static int gv_destroy_ah(struct ibv_ah *ah) { return gv_driver()->destroy_ah(ah); }
*/
import "C"

import (
	"encoding/binary"
	"slices"
	"sync"
	"syscall"
	"unsafe"
)

// Supported reports whether this build can reach rdma-core.
const Supported = true

func ptr[T any, H ~uintptr](h H) *T {
	// Through a pointer to the handle: the address is C's, which neither moves
	// nor is collected, and vet knows no way to say so of an integer.
	return *(**T)(unsafe.Pointer(&h))
}

func (h Context) c() *C.struct_ibv_context          { return ptr[C.struct_ibv_context](h) }
func (h PD) c() *C.struct_ibv_pd                    { return ptr[C.struct_ibv_pd](h) }
func (h MR) c() *C.struct_ibv_mr                    { return ptr[C.struct_ibv_mr](h) }
func (h CompChannel) c() *C.struct_ibv_comp_channel { return ptr[C.struct_ibv_comp_channel](h) }
func (h CQ) c() *C.struct_ibv_cq                    { return ptr[C.struct_ibv_cq](h) }
func (h QP) c() *C.struct_ibv_qp                    { return ptr[C.struct_ibv_qp](h) }
func (h AH) c() *C.struct_ibv_ah                    { return ptr[C.struct_ibv_ah](h) }

// handle returns the handle of an object that a create call returned, or its errno.
func handle[H ~uintptr, T any](p *T, err error) (H, error) {
	if p == nil {
		return 0, orEINVAL(err)
	}
	return H(uintptr(unsafe.Pointer(p))), nil
}

// orEINVAL is for providers that fail without setting errno.
func orEINVAL(err error) error {
	if err == nil {
		return syscall.EINVAL
	}
	return err
}

// status is the error of a call that returns an errno. Some providers return
// -1 and set errno instead, some a negative errno.
func status(r C.int, err error) error {
	switch {
	case r == 0:
		return nil
	case r == -1 && err != nil:
		return err
	case r < 0:
		return syscall.Errno(-r)
	}
	return syscall.Errno(r)
}

// SysfsPath is the folder in which libibverbs looks for devices: /sys, or $SYSFS_PATH.
func SysfsPath() string { return C.GoString(C.ibv_get_sysfs_path()) }

// Devices lists the RDMA devices of this host.
func Devices() ([]DeviceInfo, error) {
	var out []DeviceInfo
	err := eachDevice(func(d *C.struct_ibv_device) bool {
		guid := C.ibv_get_device_guid(d)
		out = append(out, DeviceInfo{
			Name:      C.GoString(C.ibv_get_device_name(d)),
			GUID:      binary.BigEndian.Uint64((*[8]byte)(unsafe.Pointer(&guid))[:]),
			NodeType:  int32(d.node_type),
			Transport: int32(d.transport_type),
		})
		return true
	})
	return out, err
}

func eachDevice(f func(*C.struct_ibv_device) bool) error {
	var n C.int
	list, err := C.ibv_get_device_list(&n)
	if list == nil {
		return orEINVAL(err)
	}
	defer C.ibv_free_device_list(list)
	for _, d := range unsafe.Slice(list, int(n)) {
		if !f(d) {
			break
		}
	}
	return nil
}

// OpenDevice opens the device of that name; ENODEV if there is none.
func OpenDevice(name string) (Context, error) {
	var ctx Context
	openErr := error(syscall.ENODEV)
	err := eachDevice(func(d *C.struct_ibv_device) bool {
		if C.GoString(C.ibv_get_device_name(d)) != name {
			return true
		}
		c, err := C.ibv_open_device(d)
		ctx, openErr = handle[Context](c, err)
		return false
	})
	if err != nil {
		return 0, err
	}
	return ctx, openErr
}

func CloseDevice(ctx Context) error {
	r, err := C.ibv_close_device(ctx.c())
	return status(r, err)
}

// AsyncFD is the descriptor on which asynchronous events arrive; it belongs to
// the context.
func AsyncFD(ctx Context) int { return int(ctx.c().async_fd) }

// NumCompVectors is the number of completion vectors of the device.
func NumCompVectors(ctx Context) int { return int(ctx.c().num_comp_vectors) }

// TakeAsyncEvent takes one event of a context with a non-blocking
// descriptor. Its object cannot be destroyed until [AckAsyncEvent].
func TakeAsyncEvent(ctx Context, ev *AsyncEvent) (bool, error) {
	var c C.struct_ibv_async_event
	n, err := polled(C.gv_take_async_event(C.uintptr_t(ctx), &c))
	toGo(&c, ev)
	return n > 0, err
}

func AckAsyncEvent(ev *AsyncEvent) {
	C.ibv_ack_async_event(toC[C.struct_ibv_async_event](ev))
}

func QueryDevice(ctx Context, a *DeviceAttr) error {
	var c C.struct_ibv_device_attr
	r, err := C.ibv_query_device(ctx.c(), &c)
	toGo(&c, a)
	return status(r, err)
}

func QueryPort(ctx Context, port uint8, a *PortAttr) error {
	var c C.struct_ibv_port_attr
	r, err := C.gv_query_port(ctx.c(), C.uint8_t(port), &c)
	toGo(&c, a)
	return status(r, err)
}

// gidTables are what tables were read into: 32 KiB on rxe, for a few entries, and a server
// reads one for each connection.
var gidTables = sync.Pool{New: func() any { return new([]C.struct_ibv_gid_entry) }}

// QueryGIDTable returns the valid entries of all ports, at most max.
func QueryGIDTable(ctx Context, max int) ([]GIDEntry, error) {
	room := gidTables.Get().(*[]C.struct_ibv_gid_entry)
	defer gidTables.Put(room)
	*room = slices.Grow((*room)[:0], max)
	table := (*room)[:max]
	n := C.ibv_query_gid_table(ctx.c(), &table[0], C.size_t(max), 0)
	if n < 0 {
		return nil, syscall.Errno(-n)
	}
	entries := make([]GIDEntry, n)
	for i := range entries {
		toGo(&table[i], &entries[i])
	}
	return entries, nil
}

func AllocPD(ctx Context) (PD, error) {
	p, err := C.gv_alloc_pd(ctx.c())
	return handle[PD](p, err)
}

func DeallocPD(pd PD) error {
	r, err := C.gv_dealloc_pd(pd.c())
	return status(r, err)
}

// RegMR registers length bytes at addr, which must stay mapped and unmoved
// until DeregMR. Work requests name the first of them by iova.
func RegMR(pd PD, addr uintptr, length int, iova uint64, access uint32) (mr MR, lkey, rkey uint32, err error) {
	p, err := C.gv_reg_mr(C.uintptr_t(pd), C.uintptr_t(addr), C.size_t(length), C.uint64_t(iova), C.uint32_t(access))
	mr, err = handle[MR](p, err)
	if err != nil {
		return 0, 0, 0, err
	}
	return mr, uint32(p.lkey), uint32(p.rkey), nil
}

func DeregMR(mr MR) error {
	r, err := C.gv_dereg_mr(mr.c())
	return status(r, err)
}

// CreateCompChannel makes a completion channel and returns its descriptor, which
// belongs to the channel.
func CreateCompChannel(ctx Context) (CompChannel, int, error) {
	p, err := C.gv_create_comp_channel(ctx.c())
	ch, err := handle[CompChannel](p, err)
	if err != nil {
		return 0, -1, err
	}
	return ch, int(p.fd), nil
}

func DestroyCompChannel(ch CompChannel) error {
	r, err := C.gv_destroy_comp_channel(ch.c())
	return status(r, err)
}

// CreateCQ makes a completion queue of at least depth entries; ch may be 0.
func CreateCQ(ctx Context, depth int, ch CompChannel, vector int) (CQ, int, error) {
	p, err := C.gv_create_cq(ctx.c(), C.int(depth), ch.c(), C.int(vector))
	cq, err := handle[CQ](p, err)
	if err != nil {
		return 0, 0, err
	}
	return cq, int(p.cqe), nil
}

func DestroyCQ(cq CQ) error {
	r, err := C.gv_destroy_cq(cq.c())
	return status(r, err)
}

func ModifyQP(qp QP, a *QPAttr, mask uint32) error {
	r, err := C.gv_modify_qp(qp.c(), toC[C.struct_ibv_qp_attr](a), C.int(mask))
	return status(r, err)
}

// ModifySteps carries out several modifications in one crossing and returns how
// many succeeded.
func ModifySteps(qp QP, as []QPAttr, masks []uint32) (int, error) {
	var done C.int
	if unsafe.Sizeof(as[0]) == C.sizeof_struct_ibv_qp_attr { // C may index them in place
		r, err := C.gv_modify_steps(qp.c(), (*C.struct_ibv_qp_attr)(unsafe.Pointer(&as[0])), (*C.uint32_t)(&masks[0]), C.int(len(as)), &done)
		return int(done), status(r, err)
	}
	steps := make([]C.struct_ibv_qp_attr, len(as))
	for i := range as {
		steps[i] = *toC[C.struct_ibv_qp_attr](&as[i])
	}
	r, err := C.gv_modify_steps(qp.c(), &steps[0], (*C.uint32_t)(&masks[0]), C.int(len(as)), &done)
	return int(done), status(r, err)
}

func QueryQP(qp QP, a *QPAttr, mask uint32) error {
	var c aligned[C.struct_ibv_qp_attr]
	var init C.struct_ibv_qp_init_attr
	r, err := C.gv_query_qp(qp.c(), &c.v, C.int(mask), &init)
	toGo(&c.v, a)
	return status(r, err)
}

func DestroyQP(qp QP) error {
	r, err := C.gv_destroy_qp(qp.c())
	return status(r, err)
}

func CreateAH(pd PD, a *AHAttr) (AH, error) {
	p, err := C.gv_create_ah(pd.c(), toC[C.struct_ibv_ah_attr](a))
	return handle[AH](p, err)
}

// InitAHFromWC fills in the way to the sender of a received datagram. grh are
// the first 40 bytes of the receive; they count if the completion says so.
func InitAHFromWC(ctx Context, port uint8, wc *WC, grh *[GRHSize]byte, a *AHAttr) error {
	r, err := C.ibv_init_ah_from_wc(ctx.c(), C.uint8_t(port), (*C.struct_ibv_wc)(unsafe.Pointer(wc)),
		(*C.struct_ibv_grh)(unsafe.Pointer(grh)), (*C.struct_ibv_ah_attr)(unsafe.Pointer(a)))
	return status(r, err)
}

func DestroyAH(ah AH) error {
	r, err := C.gv_destroy_ah(ah.c())
	return status(r, err)
}

// WCStatusString is libibverbs' own text for a completion status.
func WCStatusString(status uint32) string {
	return C.GoString(C.ibv_wc_status_str(status))
}

// EventTypeString is libibverbs' own text for an asynchronous event.
func EventTypeString(typ uint32) string {
	return C.GoString(C.ibv_event_type_str(typ))
}
