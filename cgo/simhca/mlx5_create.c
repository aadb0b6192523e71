//go:build simhca && linux && cgo

/*
 * Completion queues, shared receive queues and queue pairs. Their memory is the
 * program's: libmlx5 says where it lies, and mlx5_ib checks its sizes.
 */
#include "mlx5.h"

static bool power_of_2(uint32_t n) { return n && !(n & (n - 1)); }

static uint32_t round_up(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static int new_cq(struct sim_ctx *c, struct sim_io *io, const struct ib_uverbs_ex_create_cq *a, struct mx_cq **made)
{
	SIM_DRIVER_IN(mlx5_ib_create_cq, u);
	struct sim_chan *h = a->comp_channel >= 0 ? sim_chan_of(a->comp_channel) : NULL;
	struct mlx5_ib_create_cq_resp r;
	struct mx_cq *q;

	if (a->comp_channel >= 0 && (!h || h->ctx != c))
		return sim_refuse(EINVAL, "a completion queue with a channel that is none");
	if (a->cqe < 1 || a->cqe >= MX_MAX_CQE || a->comp_vector >= MX_VECTORS)
		return sim_refuse(EINVAL, "a completion queue of %u entries, vector %u", a->cqe, a->comp_vector);
	if ((u.cqe_size != 64 && u.cqe_size != 128) || !u.buf_addr || u.buf_addr % 64 || !u.db_addr || u.db_addr % 8)
		return sim_refuse(EINVAL, "a completion queue with entries of %u bytes at %#llx", u.cqe_size, (unsigned long long)u.buf_addr);
	if (u.cqe_comp_en)
		return sim_refuse(EOPNOTSUPP, "compressed completions");
	q = sim_add(c, SIM_CQ, sizeof(*q));
	if (!q)
		return ENOMEM;
	q->o.user = a->user_handle;
	q->o.chan = h;
	q->buf = (uint8_t *)(uintptr_t)u.buf_addr;
	q->db = (uint32_t *)(uintptr_t)u.db_addr;
	q->count = round_up(a->cqe + 1);
	q->size = u.cqe_size;
	q->overwrites = a->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	__atomic_store_n(&q->db[1], ~0u, __ATOMIC_RELEASE);
	if (h)
		sim_watch(&q->o);
	r = (struct mlx5_ib_create_cq_resp){ .cqn = q->o.handle };
	SIM_DRIVER_OUT(r);
	*made = q;
	return 0;
}

int mx_create_cq(struct sim_ctx *c, bool ex, struct sim_io *io)
{
	struct ib_uverbs_ex_create_cq_resp r = { .response_length = sizeof(r) };
	struct ib_uverbs_ex_create_cq a = {};
	struct mx_cq *q;
	int err;

	if (ex) {
		memcpy(&a, io->in, io->nin < sizeof(a) ? io->nin : sizeof(a));
	} else {
		SIM_IN(ib_uverbs_create_cq, b);
		a = (struct ib_uverbs_ex_create_cq){ .user_handle = b.user_handle, .cqe = b.cqe, .comp_vector = b.comp_vector, .comp_channel = b.comp_channel };
	}
	if (a.comp_mask || a.flags & ~(IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN))
		return sim_refuse(EOPNOTSUPP, "a completion queue with flags %#x", a.flags);
	err = new_cq(c, io, &a, &q);
	if (err)
		return err;
	r.base.cq_handle = q->o.handle;
	r.base.cqe = q->count - 1;
	if (ex)
		SIM_OUT(r);
	else
		SIM_OUT(r.base);
	return 0;
}

/* The last entry of the old memory says that the next one is in the new; libmlx5 copies. */
int mx_resize_cq(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_resize_cq, a);
	SIM_DRIVER_IN(mlx5_ib_resize_cq, u);
	struct mx_cq *q = sim_get(c, a.cq_handle, SIM_CQ);
	struct ib_uverbs_resize_cq_resp r = {};
	uint32_t ci, count = round_up(a.cqe + 1);
	uint8_t *end;

	if (!q || a.cqe < 1 || a.cqe >= MX_MAX_CQE || u.cqe_size != q->size || !u.buf_addr)
		return sim_refuse(EINVAL, "a completion queue of %u entries of %u bytes", a.cqe, u.cqe_size);
	ci = mx_load32(&q->db[0]);
	if (((q->pi - ci) & 0xffffff) + 1 > count || ((q->pi - ci) & 0xffffff) >= q->count)
		return sim_refuse(EINVAL, "a completion queue of %u entries, %u of which are used", count, (q->pi - ci) & 0xffffff);
	end = q->buf + (size_t)(q->pi & (q->count - 1)) * q->size + q->size - 1;
	__atomic_store_n(end, MLX5_CQE_RESIZE_CQ << 4 | !!(q->pi & q->count), __ATOMIC_RELEASE);
	q->pi++;
	q->buf = (uint8_t *)(uintptr_t)u.buf_addr;
	q->count = count;
	r.cqe = count - 1;
	SIM_OUT(r);
	return 0;
}

int mx_create_srq(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_create_srq, a);
	SIM_DRIVER_IN(mlx5_ib_create_srq, u);
	struct sim_obj *pd = sim_get(c, a.pd_handle, SIM_PD);
	struct ib_uverbs_create_srq_resp r;
	struct mlx5_ib_create_srq_resp ur;
	struct mx_srq *q;
	uint32_t size;

	if (!pd || a.max_wr >= MX_MAX_ENTRIES || a.max_sge > 31 || a.srq_limit >= round_up(a.max_wr + 1))
		return sim_refuse(EINVAL, "a shared receive queue of %u entries of %u pieces, limit %u", a.max_wr, a.max_sge, a.srq_limit);
	if (!u.buf_addr || !u.db_addr || u.flags)
		return sim_refuse(EINVAL, "a shared receive queue with flags %#x", u.flags);
	q = sim_add(c, SIM_SRQ, sizeof(*q));
	if (!q)
		return ENOMEM;
	sim_hold(pd, &q->o);
	size = round_up(sizeof(struct mlx5_wqe_srq_next_seg) + a.max_sge * MX_SEGMENT);
	size = size < 32 ? 32 : size;
	q->o.user = a.user_handle;
	q->buf = (uint8_t *)(uintptr_t)u.buf_addr;
	q->db = (uint32_t *)(uintptr_t)u.db_addr;
	q->count = round_up(a.max_wr + 1);
	q->max_sge = size / MX_SEGMENT - 1;
	q->limit = a.srq_limit;
	while (1u << q->shift < size)
		q->shift++;
	r = (struct ib_uverbs_create_srq_resp){ .srq_handle = q->o.handle, .max_wr = q->count - 1, .max_sge = q->max_sge, .srqn = q->o.handle };
	ur = (struct mlx5_ib_create_srq_resp){ .srqn = q->o.handle };
	SIM_OUT(r);
	SIM_DRIVER_OUT(ur);
	return 0;
}

int mx_modify_srq(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_modify_srq, a);
	struct mx_srq *q = sim_get(c, a.srq_handle, SIM_SRQ);

	if (!q || a.attr_mask & IBV_SRQ_MAX_WR || a.srq_limit >= q->count)
		return sim_refuse(EINVAL, "change of a shared receive queue: mask %#x, limit %u", a.attr_mask, a.srq_limit);
	if (a.attr_mask & IBV_SRQ_LIMIT)
		q->limit = a.srq_limit;
	return 0;
}

int mx_query_srq(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_query_srq, a);
	struct mx_srq *q = sim_get(c, a.srq_handle, SIM_SRQ);
	struct ib_uverbs_query_srq_resp r;

	if (!q)
		return EINVAL;
	r = (struct ib_uverbs_query_srq_resp){ .max_wr = q->count - 1, .max_sge = q->max_sge, .srq_limit = q->limit };
	SIM_OUT(r);
	return 0;
}

/* What mlx5_ib finds wrong with a queue pair, or NULL. */
static const char *flaw(const struct ib_uverbs_create_qp *a, const struct mlx5_ib_create_qp *u, bool dct)
{
	uint64_t recv = (uint64_t)u->rq_wqe_count << u->rq_wqe_shift, cap = a->max_recv_wr;

	if (a->max_send_wr > MX_MAX_ENTRIES || a->max_recv_wr > MX_MAX_ENTRIES || a->max_send_sge > MX_MAX_SGE || a->max_recv_sge > MX_MAX_SGE)
		return "more entries or pieces than the device has";
	if (dct)
		return !a->is_srq ? "a DCT without a shared receive queue" : u->dci_streams.log_num_concurent ? "streams of a DCT" : NULL;
	if (!u->buf_addr || !u->db_addr)
		return "no memory";
	if (u->sq_wqe_count && !power_of_2(u->sq_wqe_count))
		return "a send queue whose size is no power of two";
	if (u->sq_wqe_count > MX_MAX_ENTRIES || u->sq_wqe_count < a->max_send_wr)
		return "a send queue that is too small or too large";
	if (a->is_srq || !cap)
		return NULL;
	if (!power_of_2(u->rq_wqe_count) || u->rq_wqe_shift < 4 || u->rq_wqe_shift > 9 || recv > 1u << 24)
		return "a receive queue of a size that the device does not have";
	if (u->rq_wqe_count < cap || 1u << (u->rq_wqe_shift - 4) < a->max_recv_sge)
		return "a receive queue that is too small";
	return NULL;
}

int mx_create_qp(struct sim_ctx *c, bool ex, struct sim_io *io)
{
	SIM_DRIVER_IN(mlx5_ib_create_qp, u);
	struct ib_uverbs_create_qp a = {};
	struct ib_uverbs_ex_create_qp_resp r = { .response_length = sizeof(r) };
	struct mlx5_ib_create_qp_resp ur = { .bfreg_index = 4 };
	bool dct = u.flags & MLX5_QP_FLAG_TYPE_DCT, dci = u.flags & MLX5_QP_FLAG_TYPE_DCI;
	struct sim_obj *pd;
	struct mx_cq *s, *v;
	struct mx_srq *srq;
	struct mx_qp *q;
	const char *why;

	if (ex) { /* the same without the pointer to the response, and more behind it */
		SIM_IN(ib_uverbs_ex_create_qp, e);
		memcpy(&a.user_handle, &e, offsetof(struct ib_uverbs_ex_create_qp, comp_mask));
		if (e.comp_mask || e.create_flags)
			return sim_refuse(EOPNOTSUPP, "a queue pair with flags %#x", e.create_flags);
	} else {
		memcpy(&a, io->in, io->nin < sizeof(a) ? io->nin : sizeof(a));
	}
	if (a.qp_type == IBV_QPT_DRIVER ? dct == dci : (dct || dci || (a.qp_type != IBV_QPT_RC && a.qp_type != IBV_QPT_UC && a.qp_type != IBV_QPT_UD)))
		return sim_refuse(EOPNOTSUPP, "a queue pair of type %u", a.qp_type);
	if (u.flags & MLX5_QP_FLAG_SIGNATURE)
		return sim_refuse(EOPNOTSUPP, "signatures of work queue entries");
	pd = sim_get(c, a.pd_handle, SIM_PD);
	s = sim_get(c, a.send_cq_handle, SIM_CQ);
	v = sim_get(c, a.recv_cq_handle, SIM_CQ);
	srq = a.is_srq ? sim_get(c, a.srq_handle, SIM_SRQ) : NULL;
	if (!pd || !s || !v || (a.is_srq && !srq))
		return sim_refuse(EINVAL, "a queue pair without protection domain, completion queues or the shared receive queue that it names");
	why = flaw(&a, &u, dct);
	if (why)
		return sim_refuse(EINVAL, "a queue pair: %s", why);
	if (u.flags & MLX5_QP_FLAG_DCI_STREAM && (!dci || u.dci_streams.log_num_concurent > MX_STREAMS_LOG || u.dci_streams.log_num_errored > MX_STREAMS_LOG))
		return sim_refuse(EINVAL, "2^%u streams", u.dci_streams.log_num_concurent);
	q = sim_add(c, SIM_QP, sizeof(*q));
	if (!q)
		return ENOMEM;
	sim_hold(pd, &q->o);
	s->o.refs++;
	v->o.refs++;
	sim_watch_polls(&s->o);
	sim_watch_polls(&v->o);
	if (srq)
		srq->o.refs++;
	q->o.user = a.user_handle;
	q->type = a.qp_type;
	q->dct = dct;
	q->dci = dci;
	q->scq = s;
	q->rcq = v;
	q->srq = srq;
	q->qpn = mx_qpn0(c->dev->node) + q->o.handle;
	q->uidx = u.uidx;
	q->made = a;
	q->ece = ur.ece_options = u.ece_options ? MX_ECE : 0; /* every program is told all */
	if (dct) {
		q->dc_key = u.access_key;
	} else {
		q->rq = (uint8_t *)(uintptr_t)u.buf_addr;
		q->rq_count = a.is_srq ? 0 : u.rq_wqe_count;
		q->rq_shift = u.rq_wqe_shift;
		q->sq = q->rq + ((size_t)u.rq_wqe_count << u.rq_wqe_shift);
		q->sq_count = u.sq_wqe_count;
		q->db = (uint32_t *)(uintptr_t)u.db_addr;
	}
	if (u.flags & MLX5_QP_FLAG_DCI_STREAM) {
		q->streams = 1 << u.dci_streams.log_num_concurent;
		q->bad_streams = 1 << u.dci_streams.log_num_errored;
	}
	sim_watch(&q->o);
	r.base = (struct ib_uverbs_create_qp_resp){ .qp_handle = q->o.handle, .qpn = dct ? 0 : q->qpn, .max_send_wr = a.max_send_wr,
		.max_recv_wr = a.max_recv_wr, .max_send_sge = a.max_send_sge, .max_recv_sge = a.max_recv_sge, .max_inline_data = a.max_inline_data };
	if (ex)
		SIM_OUT(r);
	else
		SIM_OUT(r.base);
	SIM_DRIVER_OUT(ur);
	return 0;
}
