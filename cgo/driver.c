//go:build linux && cgo

#include "driver.h"
#include "extended.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

size_t gv_flush_at;

static struct gv_driver table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct ibv_qp *create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	return ibv_create_qp_ex(ctx, attr);
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	return ___ibv_query_port(ctx, port, attr);
}

/* ibv_reg_mr is the symbol that this libibverbs has for the flags. */
static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	return ibv_reg_mr(pd, addr, length, access);
}

/* These are inline functions of the headers, which have no address. */
static struct ibv_dm *alloc_dm(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr) { return ibv_alloc_dm(ctx, attr); }
static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a) { return ibv_create_cq_ex(ctx, a); }
static struct ibv_flow *create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr) { return ibv_create_flow(qp, attr); }
static int destroy_flow(struct ibv_flow *flow) { return ibv_destroy_flow(flow); }
static int free_dm(struct ibv_dm *dm) { return ibv_free_dm(dm); }
static struct ibv_mr *alloc_null_mr(struct ibv_pd *pd) { return ibv_alloc_null_mr(pd); }

static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	return ibv_reg_dm_mr(pd, dm, offset, length, access);
}

static void load(void)
{
	void *mlx5 = dlopen("libmlx5.so.1", RTLD_NOW);
	void *efa = dlopen("libefa.so.1", RTLD_NOW);

	if (mlx5) {
		table.mlx5_is_supported = dlsym(mlx5, "mlx5dv_is_supported");
		table.mlx5_query_device = dlsym(mlx5, "mlx5dv_query_device");
		table.mlx5_create_qp = dlsym(mlx5, "mlx5dv_create_qp");
		table.mlx5_qp_ex = dlsym(mlx5, "mlx5dv_qp_ex_from_ibv_qp_ex");
		table.mlx5_stream_reset = dlsym(mlx5, "mlx5dv_dci_stream_id_reset");
		table.mlx5_init_obj = dlsym(mlx5, "mlx5dv_init_obj");
		table.mlx5_udp_sport = dlsym(mlx5, "mlx5dv_modify_qp_udp_sport");
		table.mlx5_set_lag_port = dlsym(mlx5, "mlx5dv_modify_qp_lag_port");
		table.mlx5_lag_port = dlsym(mlx5, "mlx5dv_query_qp_lag_port");
	}
	if (efa) {
		table.efa_query_device = dlsym(efa, "efadv_query_device");
		table.efa_create_qp_ex = dlsym(efa, "efadv_create_qp_ex");
		table.efa_create_cq = dlsym(efa, "efadv_create_cq");
		table.efa_cq = dlsym(efa, "efadv_cq_from_ibv_cq_ex");
		table.efa_query_ah = dlsym(efa, "efadv_query_ah");
	}
	table.to_ex = ibv_qp_to_qp_ex;
	table.create_qp_ex = create_qp_ex;
	table.modify_qp = ibv_modify_qp;
	table.destroy_qp = ibv_destroy_qp;
	table.query_port = query_port;
	table.query_qp = ibv_query_qp;
	table.alloc_pd = ibv_alloc_pd;
	table.dealloc_pd = ibv_dealloc_pd;
	table.reg_mr = reg_mr;
	table.dereg_mr = ibv_dereg_mr;
	table.create_comp_channel = ibv_create_comp_channel;
	table.destroy_comp_channel = ibv_destroy_comp_channel;
	table.create_cq = ibv_create_cq;
	table.destroy_cq = ibv_destroy_cq;
	table.create_srq = ibv_create_srq;
	table.destroy_srq = ibv_destroy_srq;
	table.create_ah = ibv_create_ah;
	table.destroy_ah = ibv_destroy_ah;
	table.rereg_mr = ibv_rereg_mr;
	table.query_ece = ibv_query_ece;
	table.set_ece = ibv_set_ece;
	table.alloc_dm = alloc_dm;
	table.free_dm = free_dm;
	table.reg_dm_mr = reg_dm_mr;
	table.alloc_null_mr = alloc_null_mr;
	table.create_cq_ex = create_cq_ex;
	table.create_flow = create_flow;
	table.destroy_flow = destroy_flow;
	table.get_cq_event = ibv_get_cq_event;
	table.ack_cq_events = ibv_ack_cq_events;
}

struct gv_driver *gv_driver(void)
{
	pthread_once(&once, load);
	return &table;
}

int gv_read_sender(struct ibv_cq_ex *x, void *gid)
{
	struct efadv_cq *c = gv_driver()->efa_cq(x);

	return c->wc_read_sgid(c, gid);
}

enum { NO_DRIVER, MLX5_QP, MLX5_DCI, MLX5_DCT, EFA_SRD };

static struct ibv_qp *fail(int err)
{
	errno = err;
	return NULL;
}

static struct ibv_qp *create_mlx5(struct gv_driver *d, struct gv_qp_init *init, struct ibv_qp_init_attr_ex *a)
{
	struct mlx5dv_qp_init_attr m = {};

	if (!d->mlx5_create_qp || !d->mlx5_qp_ex)
		return fail(EOPNOTSUPP);
	if (init->raw_wqe) {
		m.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		m.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
	}
	if (init->driver == MLX5_DCI) {
		a->qp_type = IBV_QPT_DRIVER;
		a->cap.max_recv_wr = a->cap.max_recv_sge = 0;
		m.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		m.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		if (init->log_streams) {
			m.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
			m.dc_init_attr.dci_streams.log_num_concurent = init->log_streams;
			m.dc_init_attr.dci_streams.log_num_errored = init->log_errored;
		}
	}
	if (init->driver == MLX5_DCT) {
		/* A target sends nothing: no operations to ask for. */
		a->qp_type = IBV_QPT_DRIVER;
		a->comp_mask = IBV_QP_INIT_ATTR_PD;
		a->send_ops_flags = 0;
		a->cap = (struct ibv_qp_cap){};
		m.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		m.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
		m.dc_init_attr.dct_access_key = init->dc_key;
	}
	return d->mlx5_create_qp(init->ctx, a, &m);
}

/* What posting to a new queue pair has to know. */
static struct gv_sq *send_queue(struct gv_driver *d, struct gv_qp_init *init, struct ibv_qp *qp)
{
	struct ibv_qp_ex *x = d->to_ex(qp);
	enum gv_order order = GV_IN_ORDER;
	uint32_t size = init->cap.max_send_wr;
	struct gv_sq *s;

	if (init->driver == EFA_SRD)
		order = GV_ANY_ORDER;
	if (init->log_streams) {
		/*
		 * libmlx5 takes all up to the request that completed last to have
		 * completed, and no others. So of a ring that requests leave in any
		 * order only half can be promised.
		 */
		order = GV_BY_STREAM;
		size /= 2;
	}
	s = gv_sq_new(init->sends, qp->qp_num, size, order);
	if (!s)
		return NULL;
	if (init->driver == MLX5_QP || init->driver == MLX5_DCI)
		s->m = d->mlx5_qp_ex(x);
	s->rxe = init->rxe;
	s->sig_all = init->sig_all;
	s->ops = gv_callable(x, s->m, init->send_ops | (init->raw_wqe ? GV_OP_RAW : 0));
	return s;
}

struct ibv_qp *gv_create_qp(struct gv_qp_init *init, uintptr_t *how)
{
	struct gv_driver *d = gv_driver();
	struct efadv_qp_init_attr e = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	struct ibv_qp_init_attr_ex a = {
		.send_cq = init->send_cq, .recv_cq = init->recv_cq, .srq = init->srq, .cap = init->cap,
		.qp_type = init->type, .sq_sig_all = init->sig_all, .pd = init->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = init->send_ops,
	};
	struct ibv_qp *qp;
	struct gv_sq *sq;

	*how = GV_POST_PLAIN;
	switch (init->driver) {
	case NO_DRIVER:
		qp = d->create_qp_ex(init->ctx, &a);
		break;
	case EFA_SRD:
		if (!d->efa_create_qp_ex)
			return fail(EOPNOTSUPP);
		a.qp_type = IBV_QPT_DRIVER;
		qp = d->efa_create_qp_ex(init->ctx, &a, &e, sizeof(e));
		break;
	default:
		qp = create_mlx5(d, init, &a);
	}
	if (!qp)
		return NULL;
	init->cap = a.cap;
	if (init->driver == MLX5_DCT)
		return qp;
	sq = send_queue(d, init, qp);
	if (!sq) {
		d->destroy_qp(qp);
		return fail(ENOMEM);
	}
	*how = (uintptr_t)sq;
	return qp;
}
