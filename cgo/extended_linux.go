//go:build cgo

package cgo

/*
#cgo LDFLAGS: -ldl
#include "shim.h"
#include "driver.h"

static int gv_query_device_ex(uintptr_t ctx, struct ibv_device_attr_ex *a)
{
	return ibv_query_device_ex((struct ibv_context *)ctx, NULL, a);
}

static struct ibv_cq_ex *gv_create_cq_ex(uintptr_t ctx, uint32_t depth, uintptr_t channel, int vector, uint64_t fields, uint32_t flags)
{
	struct gv_driver *d = gv_driver();
	struct ibv_cq_init_attr_ex a = {
		.cqe = depth, .channel = (struct ibv_comp_channel *)channel, .comp_vector = vector,
		.wc_flags = IBV_WC_STANDARD_FLAGS | (fields & ~GV_FIELD_SENDER),
		.comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0, .flags = flags,
	};
	struct efadv_cq_init_attr e = { .wc_flags = EFADV_WC_EX_WITH_SGID };

	if (!(fields & GV_FIELD_SENDER))
		return d->create_cq_ex((struct ibv_context *)ctx, &a);
	if (!d->efa_create_cq || !d->efa_cq) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return d->efa_create_cq((struct ibv_context *)ctx, &a, &e, sizeof(e));
}

static int gv_modify_cq(uintptr_t cq, uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr a = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { count, period } };

	return ibv_modify_cq((struct ibv_cq *)cq, &a);
}

static struct ibv_pd *gv_parent_domain(uintptr_t ctx, uintptr_t pd, uintptr_t td)
{
	struct ibv_parent_domain_init_attr a = { .pd = (struct ibv_pd *)pd, .td = (struct ibv_td *)td };

	return ibv_alloc_parent_domain((struct ibv_context *)ctx, &a);
}

static struct ibv_td *gv_alloc_td(uintptr_t ctx)
{
	struct ibv_td_init_attr a = {};

	return ibv_alloc_td((struct ibv_context *)ctx, &a);
}

static struct ibv_srq *gv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a) { return gv_driver()->create_srq(pd, a); }
static int gv_destroy_srq(struct ibv_srq *srq) { return gv_driver()->destroy_srq(srq); }

static int gv_query_clock(uintptr_t ctx, uint64_t *ticks)
{
	struct ibv_values_ex v = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	int err = ibv_query_rt_values_ex((struct ibv_context *)ctx, &v);

	*ticks = v.raw_clock.tv_nsec;
	return err;
}
*/
import "C"

func (h SRQ) c() *C.struct_ibv_srq { return ptr[C.struct_ibv_srq](h) }
func (h TD) c() *C.struct_ibv_td   { return ptr[C.struct_ibv_td](h) }

// QueryDeviceEx is the extended device query; libibverbs returns zeroes for
// what the provider does not report.
func QueryDeviceEx(ctx Context, out *DeviceAttrEx) error {
	var a C.struct_ibv_device_attr_ex
	r, err := C.gv_query_device_ex(C.uintptr_t(ctx), &a)
	if err := status(r, err); err != nil {
		return err
	}
	*out = DeviceAttrEx{
		ODP: uint64(a.odp_caps.general_caps), ODPRC: uint32(a.odp_caps.per_transport_caps.rc_odp_caps),
		ODPUD:         uint32(a.odp_caps.per_transport_caps.ud_odp_caps),
		TimestampMask: uint64(a.completion_timestamp_mask), ClockKHz: uint64(a.hca_core_clock), CapFlags: uint64(a.device_cap_flags_ex),
		PacingMin: uint32(a.packet_pacing_caps.qp_rate_limit_min), PacingMax: uint32(a.packet_pacing_caps.qp_rate_limit_max),
		PacingQPTypes: uint32(a.packet_pacing_caps.supported_qpts),
		ModCount:      uint16(a.cq_mod_caps.max_cq_count), ModPeriod: uint16(a.cq_mod_caps.max_cq_period),
		MaxDMSize: uint64(a.max_dm_size),
	}
	return nil
}

// QueryClock reads the device's clock, in ticks.
func QueryClock(ctx Context) (uint64, error) {
	var t C.uint64_t
	r, err := C.gv_query_clock(C.uintptr_t(ctx), &t)
	return uint64(t), status(r, err)
}

// CreateCQEx makes an extended completion queue that has the standard fields
// of a completion and those of enum ibv_create_cq_wc_flags, or [FieldSender], in
// fields. flags are those of enum ibv_create_cq_attr_flags.
func CreateCQEx(ctx Context, depth int, ch CompChannel, vector int, fields uint64, flags uint32) (CQ, int, error) {
	p, err := C.gv_create_cq_ex(C.uintptr_t(ctx), C.uint32_t(depth), C.uintptr_t(ch), C.int(vector), C.uint64_t(fields), C.uint32_t(flags))
	cq, err := handle[CQ](p, err)
	if err != nil {
		return 0, 0, err
	}
	return cq, int(p.cqe), nil
}

// ModerateCQ lets the device raise an event after so many completions or
// microseconds, whichever comes first.
func ModerateCQ(cq CQ, count, period uint16) error {
	r, err := C.gv_modify_cq(C.uintptr_t(cq), C.uint16_t(count), C.uint16_t(period))
	return status(r, err)
}

// ResizeCQ returns the new depth.
func ResizeCQ(cq CQ, depth int) (int, error) {
	r, err := C.ibv_resize_cq(cq.c(), C.int(depth))
	return int(cq.c().cqe), status(r, err)
}

// CreateQP makes a queue pair, stores in init.Cap what it was granted and
// returns its number and how it is posted to.
func CreateQP(ctx Context, pd PD, init *QPInit) (QP, uint32, PostPath, error) {
	if !init.Extended && init.Driver == NoDriver {
		return createPlainQP(pd, init)
	}
	// The fields are set one by one from integers: no Go pointers go to C.
	c := C.struct_gv_qp_init{
		ctx: ctx.c(), pd: pd.c(), send_cq: init.SendCQ.c(), recv_cq: init.RecvCQ.c(), srq: init.SRQ.c(),
		_type: C.uint32_t(init.Type), sig_all: cBool(init.SigAll), send_ops: C.uint64_t(init.SendOps),
		driver: C.int(init.Driver), dc_key: C.uint64_t(init.DCKey), log_streams: C.uint8_t(init.LogStreams),
		log_errored: C.uint8_t(init.LogErrored), raw_wqe: cBool(init.RawWQE), rxe: cBool(init.SoftRoCE),
	}
	c.cap = *toC[C.struct_ibv_qp_cap](&init.Cap)
	if init.SendPath > PollRXE {
		c.sends = ptr[C.struct_gv_cq](init.SendPath)
	}
	var how C.uintptr_t
	p, err := C.gv_create_qp(&c, &how)
	qp, err := handle[QP](p, err)
	if err != nil {
		return 0, 0, 0, err
	}
	toGo(&c.cap, &init.Cap)
	return qp, uint32(p.qp_num), PostPath(how), nil
}

func createPlainQP(pd PD, init *QPInit) (QP, uint32, PostPath, error) {
	var a C.struct_ibv_qp_init_attr
	a.send_cq = init.SendCQ.c()
	a.recv_cq = init.RecvCQ.c()
	a.srq = init.SRQ.c()
	a.qp_type = init.Type
	a.sq_sig_all = cBool(init.SigAll)
	a.cap = *toC[C.struct_ibv_qp_cap](&init.Cap)
	p, err := C.ibv_create_qp(pd.c(), &a)
	qp, err := handle[QP](p, err)
	if err != nil {
		return 0, 0, 0, err
	}
	toGo(&a.cap, &init.Cap)
	return qp, uint32(p.qp_num), PostPlain, nil
}

// QPNum is the number of a queue pair. A DCT has one only once it is ready to
// receive.
func QPNum(qp QP) uint32 { return uint32(qp.c().qp_num) }

// RateLimitQP sets the rate of a queue pair in kbit/s and, if not 0, its
// largest burst and typical packet in bytes.
func RateLimitQP(qp QP, kbps, burst uint32, packet uint16) error {
	a := C.struct_ibv_qp_rate_limit_attr{rate_limit: C.uint32_t(kbps), max_burst_sz: C.uint32_t(burst), typical_pkt_sz: C.uint16_t(packet)}
	r, err := C.ibv_modify_qp_rate_limit(qp.c(), &a)
	return status(r, err)
}

func AllocTD(ctx Context) (TD, error) {
	p, err := C.gv_alloc_td(C.uintptr_t(ctx))
	return handle[TD](p, err)
}

func DeallocTD(td TD) error {
	r, err := C.ibv_dealloc_td(td.c())
	return status(r, err)
}

// AllocParentDomain makes a protection domain with the keys of pd. One thread
// at a time uses its queues; td may be 0.
func AllocParentDomain(ctx Context, pd PD, td TD) (PD, error) {
	p, err := C.gv_parent_domain(C.uintptr_t(ctx), C.uintptr_t(pd), C.uintptr_t(td))
	return handle[PD](p, err)
}

// CreateSRQ stores in a what the device granted.
func CreateSRQ(pd PD, a *SRQAttr) (SRQ, error) {
	var init C.struct_ibv_srq_init_attr
	init.attr = *toC[C.struct_ibv_srq_attr](a)
	p, err := C.gv_create_srq(pd.c(), &init)
	srq, err := handle[SRQ](p, err)
	if err == nil {
		toGo(&init.attr, a)
	}
	return srq, err
}

// ModifySRQ changes what mask says (enum ibv_srq_attr_mask).
func ModifySRQ(srq SRQ, a *SRQAttr, mask uint32) error {
	r, err := C.ibv_modify_srq(srq.c(), toC[C.struct_ibv_srq_attr](a), C.int(mask))
	return status(r, err)
}

func QuerySRQ(srq SRQ, a *SRQAttr) error {
	var c C.struct_ibv_srq_attr
	r, err := C.ibv_query_srq(srq.c(), &c)
	toGo(&c, a)
	return status(r, err)
}

func DestroySRQ(srq SRQ) error {
	r, err := C.gv_destroy_srq(srq.c())
	return status(r, err)
}
