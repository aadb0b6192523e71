//go:build linux && cgo

/*
 * A stand-in for libmlx5 and libefa: what is called is written down, in order and
 * with its arguments. The queue pairs are in queues.c.
 */
#include "queues.h"
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_ah {
	struct ibv_ah ah;
	struct mlx5_wqe_av av;
};

static char text[1 << 16];
static size_t used;
static struct gv_driver saved;
static char refused[64];
static int refused_with;

#define note recorder_note
#define refuse recorder_refused

void recorder_note(const char *format, ...)
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
int recorder_refused(const char *call)
{
	if (strcmp(refused, call))
		return 0;
	refused[0] = 0;
	errno = refused_with;
	return refused_with;
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

	ctx.ops.poll_cq = standin_poll_cq;
	ctx.ops.req_notify_cq = req_notify;
	ctx.ops.post_srq_recv = post_srq_recv;
	ctx.ops.post_recv = standin_post_recv;
	return (uintptr_t)&ctx;
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
	return refuse("mlx5dv_create_qp") ? NULL : standin_new_qp(a, STANDIN_MLX5, m);
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
	a->device_caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ | EFADV_DEVICE_ATTR_CAPS_RNR_RETRY | EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
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
	return standin_new_qp(a, STANDIN_EFA, NULL);
}

static struct ibv_qp *create_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a)
{
	(void)ctx;
	note("ibv_create_qp_ex");
	note_attr(a);
	return standin_new_qp(a, STANDIN_MLX5, NULL);
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	note("modify mask=%#x state=%d mtu=%d port=%u timeout=%u retry=%u rnr=%u reads=%u min_rnr=%u global=%u qkey=%#x\n", mask, a->qp_state,
	     a->path_mtu, a->port_num, a->timeout, a->retry_cnt, a->rnr_retry, a->max_rd_atomic, a->min_rnr_timer, a->ah_attr.is_global, a->qkey);
	if (refuse("modify"))
		return refused_with;
	standin_ece_modified();
	return mask & IBV_QP_STATE ? standin_set_state(qp, a->qp_state) : 0;
}

static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	(void)init;
	note("query\n");
	a->qp_state = standin_state(qp);
	return refuse("query");
}

static int destroy(struct ibv_qp *qp)
{
	note("destroy\n");
	standin_free_qp(qp);
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
	struct ibv_mr *mr;

	(void)access;
	if (recorder_refused("reg_mr"))
		return NULL;
	mr = calloc(1, sizeof(*mr));
	*mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = 1, .rkey = 2 };
	return mr;
}

/* The checks are those of ibv_rereg_mr in libibverbs/verbs.c. */
static int rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	note("ibv_rereg_mr flags=%d pd=%d access=%#x\n", flags, pd != NULL, access);
	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!length || !addr)) ||
	    (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	return 0;
}

static int dereg_mr(struct ibv_mr *mr)
{
	standin_dm_deregistered(mr);
	free(mr);
	return 0;
}

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
	a->max_msg_sz = 1U << 30;
	return 0;
}

int recorder_install(uintptr_t table, size_t wr_flush_at)
{
	struct gv_driver *d = (struct gv_driver *)table;

	if (d->create_srq == create_srq)
		return 0;
	saved = *d;
	*d = (struct gv_driver){
		is_mlx5, mlx5_query, mlx5_create, standin_mlx5_ex, stream_reset, init_obj, efa_query, efa_create, to_ex, create_ex,
		modify, destroy, query_port, query_qp, alloc_pd, dealloc_pd, reg_mr, dereg_mr, create_channel, destroy_channel,
		standin_create_cq, standin_destroy_cq, create_srq, destroy_srq, create_ah, destroy_ah, rereg_mr,
	};
	d->get_cq_event = saved.get_cq_event;
	d->ack_cq_events = saved.ack_cq_events;
	standin_features(d);
	standin_flush_at = wr_flush_at;
	used = 0;
	standin_forget();
	refused[0] = 0;
	return 1;
}

void recorder_remove(uintptr_t table) { *(struct gv_driver *)table = saved; }
