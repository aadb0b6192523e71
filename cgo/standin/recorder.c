//go:build linux && cgo

/*
 * A stand-in for libmlx5 and libefa: queue pairs that write down each call made
 * on them, in order and with its arguments.
 */
#include "recorder.h"
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake {
	struct ibv_qp_ex ex;
	struct mlx5dv_qp_ex dv;
	struct fake *next;
};

struct fake_cq {
	struct ibv_cq cq;
	struct ibv_wc wcs[256];
	unsigned head, n;
};

struct fake_ah {
	struct ibv_ah ah;
	struct mlx5_wqe_av av;
};

static char text[1 << 16];
static size_t used;
static struct gv_driver saved;
static struct fake *qps;
static uint32_t numbers;
static char refused[64];
static int refused_with;
static size_t flush_at;

static void note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	used += vsnprintf(text + used, sizeof(text) - used, format, args);
	va_end(args);
	if (used > sizeof(text) - 1)
		used = sizeof(text) - 1;
}

const char *recorder_take(void)
{
	static char out[sizeof(text)];

	memcpy(out, text, used);
	out[used] = 0;
	used = 0;
	return out;
}

void recorder_refuse(const char *call, int err)
{
	snprintf(refused, sizeof(refused), "%s", call);
	refused_with = err;
}

/* The errno that a call is to fail with, or 0. */
static int refuse(const char *call)
{
	if (strcmp(refused, call))
		return 0;
	refused[0] = 0;
	errno = refused_with;
	return refused_with;
}

static struct fake *find(uint32_t qpn)
{
	struct fake *f = qps;

	while (f && f->ex.qp_base.qp_num != qpn)
		f = f->next;
	return f;
}

int recorder_complete(uint32_t qpn, struct ibv_wc wc)
{
	struct fake *f = find(qpn);
	struct fake_cq *c;

	if (!f)
		return 0;
	c = (struct fake_cq *)(wc.opcode & IBV_WC_RECV ? f->ex.qp_base.recv_cq : f->ex.qp_base.send_cq);
	if (c->n == 256)
		return 0;
	c->wcs[(c->head + c->n++) % 256] = wc;
	return 1;
}

int recorder_set_state(uint32_t qpn, uint32_t state)
{
	struct fake *f = find(qpn);

	if (f)
		f->ex.qp_base.state = state;
	return f != NULL;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
	struct fake_cq *c = (struct fake_cq *)cq;
	int got = 0;

	for (; got < n && c->n; c->n--)
		wcs[got++] = c->wcs[c->head++ % 256];
	return got;
}

static int req_notify(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	(void)bad;
	for (; wr; wr = wr->next)
		note("recv id=%#lx lkey=%#x addr=%#lx length=%u\n", (unsigned long)wr->wr_id, wr->sg_list->lkey,
		     (unsigned long)wr->sg_list->addr, wr->sg_list->length);
	return 0;
}

uintptr_t recorder_context(void)
{
	static struct ibv_context ctx;

	ctx.ops.poll_cq = poll_cq;
	ctx.ops.req_notify_cq = req_notify;
	ctx.ops.post_srq_recv = post_srq_recv;
	return (uintptr_t)&ctx;
}

static void start(struct ibv_qp_ex *x) { note("start\n"); (void)x; }
static int complete(struct ibv_qp_ex *x) { note("complete\n"); (void)x; return refuse("complete"); }
static void wr_abort(struct ibv_qp_ex *x) { note("abort\n"); (void)x; }

/* What precedes each operation: the request's number and flags. */
static void op(struct ibv_qp_ex *x, const char *name) { note("%s id=%#lx flags=%#x", name, (unsigned long)x->wr_id, x->wr_flags); }

static void wr_send(struct ibv_qp_ex *x) { op(x, "send"); note("\n"); }
static void wr_send_imm(struct ibv_qp_ex *x, __be32 imm) { op(x, "send_imm"); note(" imm=%#x\n", be32toh(imm)); }
static void wr_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr) { op(x, "write"); note(" rkey=%#x addr=%#lx\n", rkey, (unsigned long)addr); }
static void wr_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr) { op(x, "read"); note(" rkey=%#x addr=%#lx\n", rkey, (unsigned long)addr); }

static void wr_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, __be32 imm)
{
	op(x, "write_imm");
	note(" rkey=%#x addr=%#lx imm=%#x\n", rkey, (unsigned long)addr, be32toh(imm));
}

static void wr_cas(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	op(x, "cmp_swap");
	note(" rkey=%#x addr=%#lx compare=%lu swap=%lu\n", rkey, (unsigned long)addr, (unsigned long)compare, (unsigned long)swap);
}

static void wr_faa(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t add)
{
	op(x, "fetch_add");
	note(" rkey=%#x addr=%#lx add=%lu\n", rkey, (unsigned long)addr, (unsigned long)add);
}

static void wr_flush(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level)
{
	op(x, "flush");
	note(" rkey=%#x addr=%#lx length=%zu type=%u level=%u\n", rkey, (unsigned long)addr, length, type, level);
}

static void set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
	note("  sge lkey=%#x addr=%#lx length=%u\n", lkey, (unsigned long)addr, length);
	(void)x;
}

static void set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list)
{
	note("  sge list of %zu\n", n);
	for (size_t i = 0; i < n; i++)
		set_sge(x, list[i].lkey, list[i].addr, list[i].length);
}

static void set_inline(struct ibv_qp_ex *x, void *addr, size_t length)
{
	note("  inline \"%.*s\"\n", (int)length, (char *)addr);
	(void)x;
}

static unsigned long ah_name(struct ibv_ah *ah) { return ah->handle; }

static void set_ud(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	note("  ud ah=%#lx qpn=%#x qkey=%#x\n", ah_name(ah), qpn, qkey);
	(void)x;
}

static void set_dc(struct mlx5dv_qp_ex *m, struct ibv_ah *ah, uint32_t dctn, uint64_t key)
{
	note("  dc ah=%#lx dctn=%#x key=%#lx\n", ah_name(ah), dctn, (unsigned long)key);
	(void)m;
}

static void set_dc_stream(struct mlx5dv_qp_ex *m, struct ibv_ah *ah, uint32_t dctn, uint64_t key, uint16_t stream)
{
	note("  dc ah=%#lx dctn=%#x key=%#lx stream=%u\n", ah_name(ah), dctn, (unsigned long)key, stream);
	(void)m;
}

static void raw_wqe(struct mlx5dv_qp_ex *m, const void *wqe)
{
	struct fake *f = (struct fake *)((char *)m - offsetof(struct fake, dv));
	const unsigned char *b = wqe;

	op(&f->ex, "raw");
	note(" ");
	for (int i = 0; i < (b[7] & 0x3f) * 16; i++)
		note("%02x", b[i]);
	note("\n");
}

static struct ibv_qp *new_qp(struct ibv_qp_init_attr_ex *a)
{
	struct fake *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->ex.qp_base.qp_type = a->qp_type;
	f->ex.qp_base.qp_num = 0x4711 + numbers++;
	f->ex.qp_base.send_cq = a->send_cq;
	f->ex.qp_base.recv_cq = a->recv_cq;
	f->next = qps;
	qps = f;
	f->ex.wr_start = start;
	f->ex.wr_complete = complete;
	f->ex.wr_abort = wr_abort;
	f->ex.wr_send = wr_send;
	f->ex.wr_send_imm = wr_send_imm;
	f->ex.wr_rdma_write = wr_write;
	f->ex.wr_rdma_write_imm = wr_write_imm;
	f->ex.wr_rdma_read = wr_read;
	f->ex.wr_atomic_cmp_swp = wr_cas;
	f->ex.wr_atomic_fetch_add = wr_faa;
	if (flush_at)
		*(gv_flush_fn **)((char *)&f->ex + flush_at) = wr_flush;
	f->ex.wr_set_sge = set_sge;
	f->ex.wr_set_sge_list = set_sge_list;
	f->ex.wr_set_inline_data = set_inline;
	f->ex.wr_set_ud_addr = set_ud;
	f->dv.wr_set_dc_addr = set_dc;
	f->dv.wr_set_dc_addr_stream = set_dc_stream;
	f->dv.wr_raw_wqe = raw_wqe;
	return &f->ex.qp_base;
}

static void note_attr(struct ibv_qp_init_attr_ex *a)
{
	note(" type=%#x mask=%#x ops=%#lx cap=%u,%u,%u,%u,%u srq=%d\n", a->qp_type, a->comp_mask, (unsigned long)a->send_ops_flags,
	     a->cap.max_send_wr, a->cap.max_recv_wr, a->cap.max_send_sge, a->cap.max_recv_sge, a->cap.max_inline_data, a->srq != NULL);
}

static bool is_mlx5(struct ibv_device *device)
{
	(void)device;
	return true;
}

static int mlx5_query(struct ibv_context *ctx, struct mlx5dv_context *a)
{
	(void)ctx;
	note("mlx5dv_query_device mask=%#lx\n", (unsigned long)a->comp_mask);
	a->dci_streams_caps.max_log_num_concurent = 6;
	a->dci_streams_caps.max_log_num_errored = 4;
	return 0;
}

static struct ibv_qp *mlx5_create(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a, struct mlx5dv_qp_init_attr *m)
{
	(void)ctx;
	note("mlx5dv_create_qp");
	note_attr(a);
	note("  mlx5 mask=%#lx", (unsigned long)m->comp_mask);
	if (m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC)
		note(" dc_type=%d", m->dc_init_attr.dc_type);
	if (m->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT)
		note(" key=%#lx", (unsigned long)m->dc_init_attr.dct_access_key);
	if (m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS)
		note(" streams=2^%u errored=2^%u", m->dc_init_attr.dci_streams.log_num_concurent, m->dc_init_attr.dci_streams.log_num_errored);
	if (m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS)
		note(" ops=%#lx", (unsigned long)m->send_ops_flags);
	note("\n");
	return refuse("mlx5dv_create_qp") ? NULL : new_qp(a);
}

static struct mlx5dv_qp_ex *mlx5_qp_ex(struct ibv_qp_ex *x)
{
	return &((struct fake *)((char *)x - offsetof(struct fake, ex)))->dv;
}

static struct ibv_qp_ex *to_ex(struct ibv_qp *qp) { return (struct ibv_qp_ex *)qp; }

static int stream_reset(struct ibv_qp *qp, uint16_t stream)
{
	(void)qp;
	note("mlx5dv_dci_stream_id_reset stream=%u\n", stream);
	return refuse("mlx5dv_dci_stream_id_reset");
}

static int init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
	struct fake_ah *f = (struct fake_ah *)obj->ah.in;

	note("mlx5dv_init_obj type=%#lx\n", (unsigned long)type);
	obj->ah.out->av = &f->av;
	return 0;
}

/* The size of a structure that is passed with it, unless it is that of the header. */
static void note_size(uint32_t size, size_t want)
{
	if (size != want)
		note(" size=%u", size);
}

static int efa_query(struct ibv_context *ctx, struct efadv_device_attr *a, uint32_t size)
{
	(void)ctx;
	note("efadv_query_device");
	note_size(size, sizeof(*a));
	note("\n");
	a->max_sq_wr = 512;
	a->inline_buf_size = 32;
	a->max_rdma_size = 1 << 30;
	a->device_caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ | EFADV_DEVICE_ATTR_CAPS_RNR_RETRY;
	return 0;
}

static struct ibv_qp *efa_create(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a, struct efadv_qp_init_attr *e, uint32_t size)
{
	(void)ctx;
	note("efadv_create_qp_ex");
	note_attr(a);
	note("  efa mask=%#lx driver_type=%u", (unsigned long)e->comp_mask, e->driver_qp_type);
	note_size(size, sizeof(*e));
	note("\n");
	return new_qp(a);
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	note("modify mask=%#x state=%d mtu=%d port=%u timeout=%u retry=%u rnr=%u reads=%u min_rnr=%u global=%u qkey=%#x\n", mask, a->qp_state,
	     a->path_mtu, a->port_num, a->timeout, a->retry_cnt, a->rnr_retry, a->max_rd_atomic, a->min_rnr_timer, a->ah_attr.is_global, a->qkey);
	if (refuse("modify"))
		return refused_with;
	if (mask & IBV_QP_STATE)
		qp->state = a->qp_state;
	return 0;
}

static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	(void)init;
	note("query\n");
	a->qp_state = qp->state;
	return refuse("query");
}

static int destroy(struct ibv_qp *qp)
{
	struct fake *f = (struct fake *)((char *)qp - offsetof(struct fake, ex));
	struct fake **at = &qps;

	note("destroy\n");
	while (*at && *at != f)
		at = &(*at)->next;
	if (*at)
		*at = f->next;
	free(f);
	return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = ctx;
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd) { free(pd); return 0; }

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)access;
	*mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = 1, .rkey = 2 };
	return mr;
}

static int dereg_mr(struct ibv_mr *mr) { free(mr); return 0; }

/* Its descriptor never has an event. */
static struct ibv_comp_channel *create_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *c = calloc(1, sizeof(*c));

	c->context = ctx;
	c->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return c;
}

static int destroy_channel(struct ibv_comp_channel *c)
{
	close(c->fd);
	free(c);
	return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *ctx, int depth, void *own, struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *c = calloc(1, sizeof(*c));

	(void)vector;
	c->cq = (struct ibv_cq){ .context = ctx, .channel = channel, .cq_context = own, .cqe = depth };
	return &c->cq;
}

static int destroy_cq(struct ibv_cq *cq) { free(cq); return 0; }

static struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct ibv_srq *s = calloc(1, sizeof(*s));

	(void)a;
	s->context = pd->context;
	s->pd = pd;
	return s;
}

static int destroy_srq(struct ibv_srq *s) { free(s); return 0; }

/* Address handles are known by the last byte of their GID. */
static struct ibv_ah *create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	struct fake_ah *f;

	note("create_ah global=%u gid=..%02x index=%u hops=%u port=%u dlid=%u\n", a->is_global, a->grh.dgid.raw[15], a->grh.sgid_index,
	     a->grh.hop_limit, a->port_num, a->dlid);
	if (refuse("create_ah"))
		return NULL;
	f = calloc(1, sizeof(*f));
	f->ah.context = pd->context;
	f->ah.handle = a->grh.dgid.raw[15];
	/* As mlx5_create_ah of rdma-core fills it in for RoCE v2. */
	f->av.rlid = htobe16(0xc000);
	f->av.stat_rate_sl = 0x50;
	memset(f->av.rmac, 0xbb, sizeof(f->av.rmac));
	f->av.hop_limit = a->grh.hop_limit;
	f->av.grh_gid_fl = htobe32(1 << 30 | a->grh.sgid_index << 20);
	memcpy(f->av.rgid, a->grh.dgid.raw, sizeof(f->av.rgid));
	return &f->ah;
}

static int destroy_ah(struct ibv_ah *ah)
{
	note("destroy_ah\n");
	free(ah);
	return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *a)
{
	(void)ctx;
	(void)port;
	memset(a, 0, sizeof(*a));
	a->state = IBV_PORT_ACTIVE;
	a->active_mtu = IBV_MTU_4096;
	a->max_mtu = IBV_MTU_4096;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

int recorder_install(uintptr_t table, size_t wr_flush_at)
{
	struct gv_driver *d = (struct gv_driver *)table;

	if (d->create_cq == create_cq)
		return 0;
	saved = *d;
	*d = (struct gv_driver){
		is_mlx5, mlx5_query, mlx5_create, mlx5_qp_ex, stream_reset, init_obj, efa_query, efa_create, to_ex, saved.create_qp_ex,
		modify, destroy, query_port, query_qp, alloc_pd, dealloc_pd, reg_mr, dereg_mr, create_channel, destroy_channel,
		create_cq, destroy_cq, create_srq, destroy_srq, create_ah, destroy_ah,
	};
	flush_at = wr_flush_at;
	used = 0;
	qps = NULL;
	numbers = 0;
	refused[0] = 0;
	return 1;
}

void recorder_remove(uintptr_t table) { *(struct gv_driver *)table = saved; }
