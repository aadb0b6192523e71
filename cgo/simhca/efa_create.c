//go:build simhca && linux && cgo

/* EFA's completion queues and queue pairs, and the states of these. */
#include "efa.h"
#include <stdlib.h>

static struct ef_qp *slots[EF_MAX_QP];

int ef_create_cq(struct sim_ctx *c, bool ex, struct sim_io *io)
{
	SIM_DRIVER_IN(efa_ibv_create_cq, u);
	struct ib_uverbs_ex_create_cq_resp r = { .response_length = sizeof(r) };
	struct efa_ibv_create_cq_resp ur = {};
	struct ib_uverbs_ex_create_cq a = {};
	struct sim_chan *h;
	struct ef_cq *q;

	if (ex) {
		memcpy(&a, io->in, io->nin < sizeof(a) ? io->nin : sizeof(a));
	} else {
		SIM_IN(ib_uverbs_create_cq, b);
		a = (struct ib_uverbs_ex_create_cq){ .user_handle = b.user_handle, .cqe = b.cqe, .comp_vector = b.comp_vector, .comp_channel = b.comp_channel };
	}
	h = a.comp_channel >= 0 ? sim_chan_of(a.comp_channel) : NULL;
	if (a.comp_channel >= 0 && (!h || h->ctx != c))
		return sim_refuse(EINVAL, "a completion queue with a channel that is none");
	if (a.flags)
		return sim_refuse(EOPNOTSUPP, "a completion queue with flags %#x", a.flags);
	if (a.comp_vector || a.cqe < 1 || a.cqe > EF_MAX_CQE || a.cqe & (a.cqe - 1) || u.comp_mask || u.num_sub_cqs != EF_SUB_CQS)
		return sim_refuse(EINVAL, "a completion queue of %u entries, vector %u, %u parts", a.cqe, a.comp_vector, u.num_sub_cqs);
	if (u.cq_entry_size != 16 && u.cq_entry_size != 32)
		return sim_refuse(EINVAL, "completions of %u bytes", u.cq_entry_size);
	q = sim_add(c, SIM_CQ, sizeof(*q));
	if (!q)
		return ENOMEM;
	q->o.user = a.user_handle;
	q->o.chan = h;
	q->count = a.cqe;
	q->size = u.cq_entry_size;
	q->mem = ef_region(c, (size_t)a.cqe * u.cq_entry_size * EF_SUB_CQS);
	ur.q_mmap_key = q->mem->key;
	ur.q_mmap_size = q->mem->len;
	ur.cq_idx = q->o.handle;
	if (u.flags & EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL) { /* only then is there a doorbell */
		q->page = ef_region(c, EF_PAGE);
		ur.comp_mask |= EFA_CREATE_CQ_RESP_DB_OFF;
		ur.db_off = 0x40;
		ur.db_mmap_key = q->page->key;
		q->db = (uint32_t *)(q->page->at + ur.db_off);
		*q->db = ~0u;
		sim_watch(&q->o);
	}
	r.base = (struct ib_uverbs_create_cq_resp){ .cq_handle = q->o.handle, .cqe = a.cqe };
	if (ex)
		SIM_OUT(r);
	else
		SIM_OUT(r.base);
	SIM_DRIVER_OUT(ur);
	return 0;
}

struct ef_qp *ef_qp_of(struct sim_device *d, uint16_t qpn)
{
	struct ef_qp *q = slots[qpn % EF_MAX_QP];

	return q && q->qpn == qpn && q->o.ctx->dev == d ? q : NULL;
}

void ef_qp_forget(struct ef_qp *q)
{
	while (q->requests) {
		struct ef_request *r = q->requests;

		q->requests = r->next;
		free(r);
	}
	ef_region_drop(q->sq_mem);
	ef_region_drop(q->rq_mem);
	ef_region_drop(q->page);
	q->scq->o.refs--;
	q->rcq->o.refs--;
	slots[q->qpn % EF_MAX_QP] = NULL;
	sim_fault_end(&q->o, q->qpn);
}

/* The pages that libefa is about to map. */
static void give_memory(struct ef_qp *q, struct sim_ctx *c, const struct efa_ibv_create_qp *u, struct efa_ibv_create_qp_resp *r)
{
	*r = (struct efa_ibv_create_qp_resp){ .send_sub_cq_idx = EF_SENDS, .recv_sub_cq_idx = EF_RECEIVES, .sq_db_offset = 0x100, .rq_db_offset = 0x108,
		.llq_desc_offset = 0x200 };
	q->page = ef_region(c, EF_PAGE);
	r->sq_db_mmap_key = r->rq_db_mmap_key = q->page->key;
	q->sq_db = (uint32_t *)(q->page->at + r->sq_db_offset);
	q->rq_db = (uint32_t *)(q->page->at + r->rq_db_offset);
	q->sq_count = u->sq_ring_size / sizeof(*q->sq);
	q->rq_count = u->rq_ring_size / sizeof(*q->rq);
	if (q->sq_count) {
		q->sq_mem = ef_region(c, u->sq_ring_size + r->llq_desc_offset);
		r->llq_desc_mmap_key = q->sq_mem->key;
		q->sq = (struct ef_entry *)(q->sq_mem->at + r->llq_desc_offset);
	}
	if (q->rq_count) {
		q->rq_mem = ef_region(c, u->rq_ring_size);
		r->rq_mmap_key = q->rq_mem->key;
		r->rq_mmap_size = q->rq_mem->len;
		q->rq = (struct ef_receive *)q->rq_mem->at;
	}
}

int ef_create_qp(struct sim_ctx *c, bool ex, struct sim_io *io)
{
	static uint16_t round;
	SIM_DRIVER_IN(efa_ibv_create_qp, u);
	struct ib_uverbs_create_qp a = {};
	struct ib_uverbs_ex_create_qp_resp r = { .response_length = sizeof(r) };
	struct efa_ibv_create_qp_resp ur;
	struct sim_obj *pd;
	struct ef_cq *s, *v;
	struct ef_qp *q;
	int slot = 0;

	/* The extended form is the same without the pointer to the response. */
	memcpy(ex ? (void *)&a.user_handle : &a, io->in, ex ? offsetof(struct ib_uverbs_ex_create_qp, comp_mask) : sizeof(a));
	pd = sim_get(c, a.pd_handle, SIM_PD);
	s = sim_get(c, a.send_cq_handle, SIM_CQ);
	v = sim_get(c, a.recv_cq_handle, SIM_CQ);
	if (!pd || !s || !v || u.comp_mask)
		return sim_refuse(EINVAL, "a queue pair without protection domain or completion queues");
	if (a.is_srq || (a.qp_type != IBV_QPT_UD && (a.qp_type != IBV_QPT_DRIVER || u.driver_qp_type != EFA_QP_DRIVER_TYPE_SRD)))
		return sim_refuse(EOPNOTSUPP, "a queue pair of type %u", a.qp_type);
	if (a.max_send_wr > EF_MAX_SQ || a.max_recv_wr > EF_MAX_RQ || a.max_send_sge > EF_SGE || a.max_recv_sge > EF_SGE || a.max_inline_data > EF_INLINE)
		return sim_refuse(EINVAL, "a queue pair of %u and %u entries, %u and %u pieces, %u bytes inline", a.max_send_wr, a.max_recv_wr,
				  a.max_send_sge, a.max_recv_sge, a.max_inline_data);
	if (u.sq_ring_size != a.max_send_wr * sizeof(struct ef_entry) || u.rq_ring_size % sizeof(struct ef_receive))
		return sim_refuse(EINVAL, "rings of %u and %u bytes", u.sq_ring_size, u.rq_ring_size);
	while (slot < EF_MAX_QP && slots[slot])
		slot++;
	q = slot < EF_MAX_QP ? sim_add(c, SIM_QP, sizeof(*q)) : NULL;
	if (!q)
		return ENOMEM;
	sim_hold(pd, &q->o);
	s->o.refs++;
	v->o.refs++;
	ef_cq_hook(s);
	ef_cq_hook(v);
	sim_watch_polls(&s->o);
	sim_watch_polls(&v->o);
	round = round % 60 + 1; /* a number comes around late, and two differ in their lower bits */
	q->o.user = a.user_handle;
	q->ud = a.qp_type == IBV_QPT_UD;
	q->scq = s;
	q->rcq = v;
	q->qpn = round * EF_MAX_QP + slot;
	q->rnr = 3;
	q->made = a;
	slots[slot] = q;
	give_memory(q, c, &u, &ur);
	sim_watch(&q->o);
	r.base = (struct ib_uverbs_create_qp_resp){ .qp_handle = q->o.handle, .qpn = q->qpn, .max_send_wr = a.max_send_wr, .max_recv_wr = a.max_recv_wr,
		.max_send_sge = a.max_send_sge, .max_recv_sge = a.max_recv_sge, .max_inline_data = a.max_inline_data };
	if (ex)
		SIM_OUT(r);
	else
		SIM_OUT(r.base);
	SIM_DRIVER_OUT(ur);
	return 0;
}

/* SRD has a table of its own in the kernel: that of UD, and one attribute more. */
static bool may(const struct ef_qp *q, int from, int to, uint32_t mask)
{
	if (!q->ud && from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		mask &= ~IBV_QP_RNR_RETRY;
	return sim_qp_may(IBV_QPT_UD, from, to, mask);
}

int ef_modify_qp(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_modify_qp, a);
	struct ef_qp *q = sim_get(c, a.qp_handle, SIM_QP);
	uint32_t m = a.attr_mask, known = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY |
		IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY;
	int from, to;

	if (!q)
		return EINVAL;
	if (m & ~known)
		return sim_refuse(EOPNOTSUPP, "queue pair %#x: attributes %#x", q->qpn, m & ~known);
	from = m & IBV_QP_CUR_STATE ? a.cur_qp_state : q->state;
	to = m & IBV_QP_STATE ? a.qp_state : from;
	if (!may(q, from, to, m) || from != q->state)
		return sim_refuse(EINVAL, "change of queue pair %#x in state %d: from %d to %d with attributes %#x", q->qpn, q->state, from, to, m);
	if ((m & IBV_QP_PORT && a.port_num != 1) || (m & IBV_QP_PKEY_INDEX && a.pkey_index))
		return sim_refuse(EOPNOTSUPP, "queue pair %#x: port %u, P_Key index %u", q->qpn, a.port_num, a.pkey_index);
	if (m & IBV_QP_QKEY)
		q->qkey = a.qkey;
	if (m & IBV_QP_SQ_PSN)
		q->psn = a.sq_psn;
	if (m & IBV_QP_RNR_RETRY)
		q->rnr = a.rnr_retry;
	q->state = to;
	if (to == IBV_QPS_RTS)
		sim_watch_posts(&q->o);
	if (to == IBV_QPS_RESET) {
		while (q->requests) {
			struct ef_request *r = q->requests;

			q->requests = r->next;
			free(r);
		}
		q->sq_next = q->rq_next = 0;
		*q->sq_db = *q->rq_db = 0;
	}
	return 0;
}

int ef_query_qp(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_query_qp, a);
	struct ef_qp *q = sim_get(c, a.qp_handle, SIM_QP);
	const uint32_t known = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_SQ_PSN | IBV_QP_CAP | IBV_QP_RNR_RETRY;
	struct ib_uverbs_query_qp_resp r;

	if (!q)
		return EINVAL;
	if (a.attr_mask & ~known)
		return sim_refuse(EOPNOTSUPP, "query of attributes %#x", a.attr_mask & ~known);
	r = (struct ib_uverbs_query_qp_resp){ .max_send_wr = q->made.max_send_wr, .max_recv_wr = q->made.max_recv_wr, .max_send_sge = q->made.max_send_sge,
		.max_recv_sge = q->made.max_recv_sge, .max_inline_data = q->made.max_inline_data, .qkey = q->qkey, .sq_psn = q->psn, .qp_state = q->state,
		.port_num = 1, .rnr_retry = q->rnr };
	SIM_OUT(r);
	return 0;
}
