//go:build linux && cgo

/*
 * A stand-in for libmlx5 and libefa: queue pairs that write down each call made
 * on them, in order and with its arguments.
 */
#include "recorder.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake {
	struct ibv_qp_ex ex;
	struct mlx5dv_qp_ex dv;
};

static char text[1 << 16];
static size_t used;
static struct gv_driver saved;

uintptr_t recorder_context(void)
{
	static struct ibv_context ctx;

	return (uintptr_t)&ctx;
}

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

static void start(struct ibv_qp_ex *x) { note("start\n"); (void)x; }
static int complete(struct ibv_qp_ex *x) { note("complete\n"); (void)x; return 0; }
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

static void set_ud(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	note("  ud ah=%#lx qpn=%#x qkey=%#x\n", (unsigned long)ah, qpn, qkey);
	(void)x;
}

static void set_dc(struct mlx5dv_qp_ex *m, struct ibv_ah *ah, uint32_t dctn, uint64_t key)
{
	note("  dc ah=%#lx dctn=%#x key=%#lx\n", (unsigned long)ah, dctn, (unsigned long)key);
	(void)m;
}

static void set_dc_stream(struct mlx5dv_qp_ex *m, struct ibv_ah *ah, uint32_t dctn, uint64_t key, uint16_t stream)
{
	note("  dc ah=%#lx dctn=%#x key=%#lx stream=%u\n", (unsigned long)ah, dctn, (unsigned long)key, stream);
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
	f->ex.qp_base.qp_num = 0x4711;
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
	return new_qp(a);
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
	return 0;
}

static int efa_query(struct ibv_context *ctx, struct efadv_device_attr *a, uint32_t size)
{
	(void)ctx;
	note("efadv_query_device size=%u\n", size);
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
	note("  efa mask=%#lx driver_type=%u size=%u\n", (unsigned long)e->comp_mask, e->driver_qp_type, size);
	return new_qp(a);
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	(void)qp;
	note("modify mask=%#x state=%d mtu=%d port=%u timeout=%u retry=%u rnr=%u reads=%u min_rnr=%u global=%u qkey=%#x\n", mask, a->qp_state,
	     a->path_mtu, a->port_num, a->timeout, a->retry_cnt, a->rnr_retry, a->max_rd_atomic, a->min_rnr_timer, a->ah_attr.is_global, a->qkey);
	return 0;
}

static int destroy(struct ibv_qp *qp)
{
	note("destroy\n");
	free((char *)qp - offsetof(struct fake, ex));
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

void recorder_install(uintptr_t table)
{
	struct gv_driver *d = (struct gv_driver *)table;

	saved = *d;
	*d = (struct gv_driver){ is_mlx5, mlx5_query, mlx5_create, mlx5_qp_ex, stream_reset, efa_query, efa_create, to_ex,
				 saved.create_qp_ex, modify, destroy, query_port };
	used = 0;
}

void recorder_remove(uintptr_t table) { *(struct gv_driver *)table = saved; }
