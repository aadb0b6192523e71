//go:build simhca && linux && cgo

/* Completion queue entries, and the events that they raise. */
#include "mlx5.h"

static void overrun(struct mx_cq *q)
{
	if (!q->overrun)
		sim_async_event(&q->o, IBV_EVENT_CQ_ERR);
	q->overrun = true;
	sim_trace(1, "completion queue %u overruns", q->o.handle);
	for (struct sim_obj *o = sim_working; o; o = o->next) {
		struct mx_qp *p = (struct mx_qp *)o;

		if (o->kind == SIM_QP && o->ctx->dev->model == &sim_mlx5 && (p->scq == q || p->rcq == q))
			p->state = IBV_QPS_ERR;
	}
}

static void fire(struct mx_cq *q)
{
	q->armed = false;
	q->waiting = 0;
	sim_completion_event(&q->o);
}

/* There is something to tell of: at once, or when it is enough or late (moderation). */
static void tell(struct mx_cq *q)
{
	if (!q->waiting++)
		q->since = sim_now();
	if ((!q->enough && !q->period) || (q->enough && q->waiting >= q->enough))
		fire(q);
}

static bool late(const struct mx_cq *q)
{
	return q->armed && q->waiting && q->period && sim_now() - q->since >= q->period * 1000ull;
}

int mx_modify_cq(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_ex_modify_cq, a);
	struct mx_cq *q = sim_get(c, a.cq_handle, SIM_CQ);

	if (!q || a.attr_mask != IBV_CQ_ATTR_MODERATE || a.attr.cq_period > MX_MAX_PERIOD)
		return sim_refuse(EINVAL, "change of a completion queue: mask %#x, %u us", a.attr_mask, a.attr.cq_period);
	q->enough = a.attr.cq_count;
	q->period = a.attr.cq_period;
	return 0;
}

static bool wakes(const struct mx_cq *q, uint8_t end) { return !q->solicited || end & 2 || end >> 4 >= MLX5_CQE_REQ_ERR; }

static void push(struct mx_cq *q, struct mlx5_cqe64 *e, int opcode, bool solicited)
{
	uint32_t ci = mx_load32(&q->db[0]);
	uint8_t *at = q->buf + (size_t)(q->pi & (q->count - 1)) * q->size + q->size - sizeof(*e);
	uint8_t end = opcode << 4 | (solicited ? 2 : 0) | !!(q->pi & q->count);

	if (!q->overwrites && (q->overrun || ((q->pi - ci) & 0xffffff) >= q->count)) {
		overrun(q);
		return;
	}
	if (opcode < MLX5_CQE_REQ_ERR) /* else the syndrome is there */
		e->timestamp = htobe64(mx_tick());
	/* The last byte makes it the program's. */
	memcpy(at, e, sizeof(*e) - 1);
	__atomic_store_n(at + sizeof(*e) - 1, end, __ATOMIC_RELEASE);
	q->pi++;
	if (q->armed && wakes(q, end))
		tell(q);
}

/*
 * The arming. libmlx5 writes the word and never reads it: taking it away makes
 * two that say the same different.
 */
bool mx_cq_work(struct mx_cq *q)
{
	uint32_t word = __atomic_load_n(&q->db[1], __ATOMIC_ACQUIRE);

	if (late(q))
		fire(q);
	sim_waiting |= q->armed && q->waiting;
	if (word == ~0u)
		return false;
	word = be32toh(__atomic_exchange_n(&q->db[1], ~0u, __ATOMIC_ACQ_REL));
	q->solicited = word >> 24 & 1;
	q->armed = true;
	q->waiting = 0;
	/* What has come since the program last looked counts. */
	for (uint32_t ci = word & 0xffffff; ci != (q->pi & 0xffffff); ci = (ci + 1) & 0xffffff) {
		if (wakes(q, q->buf[(size_t)(ci & (q->count - 1)) * q->size + q->size - 1])) {
			tell(q);
			if (!q->armed)
				break;
		}
	}
	return true;
}

/* What mlx5 cards were seen to say beside a syndrome. */
static uint8_t vendor(int syndrome)
{
	switch (syndrome) {
	case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR: return 0x81;
	case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR: return 0x87;
	case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR: return 0x88;
	case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR: return 0x8a;
	case MLX5_CQE_SYNDROME_WR_FLUSH_ERR: return 0xf9;
	}
	return 0x50;
}

static void set_error(struct mlx5_cqe64 *e, int syndrome)
{
	struct mlx5_err_cqe *err = (struct mlx5_err_cqe *)e;

	err->syndrome = syndrome;
	err->vendor_err_synd = vendor(syndrome);
}

void mx_request_done(struct mx_qp *q, const struct mx_wqe *w, int syndrome)
{
	struct mlx5_cqe64 e = { .srqn_uidx = htobe32(q->uidx), .sop_drop_qpn = htobe32((uint32_t)w->opcode << 24 | q->qpn),
		.wqe_counter = htobe16(w->at), .byte_cnt = htobe32(w->bytes) };

	if (syndrome)
		set_error(&e, syndrome);
	push(q->scq, &e, syndrome ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ, false);
}

/* e has what depends on the kind of message. */
void mx_receive_done(struct mx_qp *q, const struct mx_recv *r, struct mlx5_cqe64 *e, int opcode, int syndrome)
{
	bool solicited = e->op_own;

	e->op_own = 0;
	e->srqn_uidx = htobe32(q->uidx);
	e->sop_drop_qpn = htobe32(q->qpn);
	e->wqe_counter = htobe16(r->index);
	if (syndrome)
		set_error(e, syndrome);
	push(q->rcq, e, syndrome ? MLX5_CQE_RESP_ERR : opcode, solicited);
}
