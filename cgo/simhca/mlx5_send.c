//go:build simhca && linux && cgo

/*
 * Requests of connections, and of DCIs: the requester's checks, the way to the
 * responder, and the responder's checks.
 */
#include "mlx5.h"

/* No answer from the other side, until all tries are over. */
static int silence(struct mx_qp *q, struct mx_pending *p)
{
	uint64_t all = (4096ull << q->attr.timeout) * (q->attr.retry_cnt + 1);

	if (q->type == IBV_QPT_UC)
		return MX_DONE; /* no process is told */
	if (!p->since)
		p->since = sim_now();
	if (!q->attr.timeout || sim_now() - p->since < all) /* 0 is without end */
		return MX_WAIT;
	return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
}

/* The responder has no receive: section 9.7.5.2.8, times in units of 10 us. */
static int not_ready(struct mx_qp *q, unsigned rnr_timer, struct mx_pending *p)
{
	static const uint32_t timer[32] = { 65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
		2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };
	uint64_t all = 10000ull * timer[rnr_timer & 31] * (q->attr.rnr_retry + 1);

	if (q->type == IBV_QPT_UC)
		return MX_DONE;
	if (!p->since)
		p->since = sim_now();
	if (q->attr.rnr_retry == 7 || sim_now() - p->since < all)
		return MX_WAIT;
	return MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR;
}

static struct sim_device *far_end(const struct mx_qp *q)
{
	const struct ib_uverbs_qp_dest *d = &q->attr.dest;

	return mx_device_at(q->o.ctx->dev, d->dgid, d->is_global, d->dlid, q->attr.dest_qp_num);
}

/* The queue pair that a connection leads to, if it leads back. */
struct mx_qp *mx_connected(struct mx_qp *q)
{
	struct sim_device *d = far_end(q);
	struct mx_qp *t = d ? mx_qp_of(d, q->attr.dest_qp_num) : NULL;

	if (!t || t->type != q->type || t->state < IBV_QPS_RTR || t->state > IBV_QPS_SQE || t->failed || t->attr.dest_qp_num != q->qpn ||
	    far_end(t) != q->o.ctx->dev)
		return NULL;
	if (q->type == IBV_QPT_RC && t->recv_psn != q->send_psn) {
		sim_trace(1, "queue pair %#x sends packet %#x and %#x expects %#x", q->qpn, q->send_psn, t->qpn, t->recv_psn);
		return NULL;
	}
	return t;
}

static struct mx_qp *target(struct mx_qp *q, const struct mx_wqe *w)
{
	bool global = !q->o.ctx->dev->ib || be32toh(w->av.grh_gid_fl) >> 30 & 1;
	struct sim_device *d = mx_device_at(q->o.ctx->dev, w->av.rgid, global, be16toh(w->av.rlid), mx_av_qpn(&w->av));
	struct mx_qp *t = d ? mx_qp_of(d, mx_av_qpn(&w->av)) : NULL;

	return t && t->dct && t->state == IBV_QPS_RTR ? t : NULL;
}

static uint32_t rights(uint8_t opcode)
{
	return opcode == MLX5_OPCODE_RDMA_READ ? IBV_ACCESS_REMOTE_READ : mx_is_atomic(opcode) ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_REMOTE_WRITE;
}

static uint32_t mtu(const struct mx_qp *q) { return 128u << q->attr.path_mtu; }

/* The responder's look at a request, and the memory that it is for. */
static int respond(struct mx_qp *q, struct mx_qp *t, struct mx_wqe *w, uint8_t **at)
{
	uint32_t need = rights(w->opcode);

	if (mtu(q) > mtu(t) && w->bytes > mtu(t)) {
		sim_trace(1, "queue pair %#x sends packets of %u bytes to one of %u", q->qpn, mtu(q), mtu(t));
		return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
	}
	if (w->opcode == MLX5_OPCODE_SEND_INVAL && !mx_may_invalidate(t, be32toh(w->imm)))
		return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	if (mx_is_send(w->opcode))
		return 0;
	if (need != IBV_ACCESS_REMOTE_WRITE && !t->dct && !t->attr.max_dest_rd_atomic)
		return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
	if (mx_is_atomic(w->opcode) && w->raddr & (mx_atomic_size(w) - 1))
		return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
	if (!(t->attr.qp_access_flags & need)) {
		sim_trace(1, "queue pair %#x does not allow rights %#x", t->qpn, need);
		return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	}
	if (!w->bytes)
		return 0; /* neither key nor address count */
	*at = mx_remote_memory(t, w->rkey, w->raddr, w->bytes, need);
	return *at ? 0 : MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
}

/* A message to a receive that was taken. Its bytes lie in another process, or in this one. */
static int deliver(struct sim_node *from, uint32_t qpn, uint16_t lid, struct mx_qp *t, struct mx_wqe *w, struct mx_recv *r)
{
	struct mlx5_cqe64 e = { .byte_cnt = htobe32(w->bytes), .op_own = w->flags & MLX5_WQE_CTRL_SOLICITED, .slid = htobe16(lid) };
	int opcode = w->opcode == MLX5_OPCODE_SEND ? MLX5_CQE_RESP_SEND : w->opcode == MLX5_OPCODE_SEND_IMM ? MLX5_CQE_RESP_SEND_IMM :
		w->opcode == MLX5_OPCODE_SEND_INVAL ? MLX5_CQE_RESP_SEND_INV : MLX5_CQE_RESP_WR_IMM;

	if (mx_is_send(w->opcode)) {
		if (r->protection) {
			mx_receive_done(t, r, &e, 0, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
			return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
		}
		if (r->room < w->bytes) {
			mx_receive_done(t, r, &e, 0, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
			return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
		}
		if (sim_transfer(from, false, r->pieces, r->npieces, w->pieces, w->npieces)) {
			mx_receive_done(t, r, &e, 0, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);
			return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
		}
	}
	if (opcode != MLX5_CQE_RESP_SEND)
		e.imm_inval_pkey = w->imm;
	if (opcode == MLX5_CQE_RESP_SEND_INV)
		mx_invalidate(t, be32toh(w->imm));
	if (t->dct)
		e.flags_rqpn = htobe32(qpn);
	mx_receive_done(t, r, &e, opcode, 0);
	return MX_DONE;
}

/* The responder's part in a message from a queue pair of such a number and LID. */
int mx_accept(struct sim_node *from, uint32_t qpn, uint16_t lid, struct mx_qp *t, struct mx_wqe *w)
{
	bool ends = w->opcode == MLX5_OPCODE_SEND_INVAL;
	int status = MX_NOT_READY;
	struct mx_recv r;

	if (ends && !sim_try_change())
		return MX_WAIT;
	if (ends && !mx_may_invalidate(t, be32toh(w->imm)))
		status = MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	else if (mx_take(t, &r))
		status = deliver(from, qpn, lid, t, w, &r);
	if (ends)
		sim_changed();
	return status;
}

/* What the requester finds wrong itself. */
static int check(struct mx_qp *q, const struct mx_wqe *w)
{
	if (w->flaw) {
		sim_trace(1, "refused: queue pair %#x, entry %u, opcode %#x: %s", q->qpn, w->at, w->opcode, w->flaw);
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	}
	if (w->protection)
		return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
	if (w->bytes > MX_MAX_MESSAGE)
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	/* mlx5_ib makes 1 of the 0 of a DCI, as rdma-core's tests expect. */
	if ((w->opcode == MLX5_OPCODE_RDMA_READ || mx_is_atomic(w->opcode)) && !q->attr.max_rd_atomic && !q->dci)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	return 0;
}

/* The slot of the process that a request goes to, or -1. */
static int destination(struct mx_qp *q, const struct mx_wqe *w)
{
	if (q->dci)
		return mx_slot_at(q->o.ctx->dev, w->av.rgid, be16toh(w->av.rlid), mx_av_qpn(&w->av));
	return mx_slot_at(q->o.ctx->dev, q->attr.dest.dgid, q->attr.dest.dlid, q->attr.dest_qp_num);
}

/* Tells whether a WRITE or an atomic would succeed, without doing anything. */
bool mx_would_work(struct mx_qp *q, struct mx_wqe *w)
{
	struct mx_qp *t;
	uint8_t *at = NULL;
	bool would = false;

	if (!check(q, w) && sim_enter(destination(q, w)) == SIM_IN) {
		t = q->dci ? target(q, w) : mx_connected(q);
		would = t && !(q->dci && t->dc_key != be64toh(w->av.key.dc_key)) && !respond(q, t, w, &at);
		sim_leave();
	}
	return would;
}

static uint32_t packets(const struct mx_qp *q, const struct mx_wqe *w) { return w->bytes ? (w->bytes + mtu(q) - 1) / mtu(q) : 1; }

/* A request to a queue pair of this process or, if its memory is all that it takes, of another one. */
static int request(struct mx_qp *q, struct mx_qp *t, struct mx_wqe *w, struct mx_pending *p)
{
	struct sim_node *n = t->o.ctx->dev->node;
	uint8_t *at = NULL;
	int status = respond(q, t, w, &at);

	if (!status && (w->opcode == MLX5_OPCODE_RDMA_READ || mx_is_write(w->opcode)))
		status = mx_move(q, w, p, n, at);
	if (!status && mx_is_atomic(w->opcode))
		status = mx_atomic(w, n, at);
	if (!status && (mx_is_send(w->opcode) || w->opcode == MLX5_OPCODE_RDMA_WRITE_IMM))
		status = n == sim_self ? mx_accept(n, q->qpn, q->o.ctx->dev->lid, t, w) : mx_send_message(q, t, w, p);
	return status;
}

/* A responder is in error that has refused a request. Its own process tells its program. */
static void refuse(struct mx_qp *t, int status)
{
	uint32_t event = (status & 0xff) == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;

	if (t->o.ctx->dev->node == sim_self) {
		mx_fail(t, event);
	} else {
		t->failed = event;
		sim_wake(t->o.ctx->dev->node->slot);
	}
}

/* What an executed request does to both queue pairs, and what its requester is told. */
int mx_conclude(struct mx_qp *q, struct mx_qp *t, const struct mx_wqe *w, int status)
{
	if (!status && !q->dci) {
		q->send_psn = (q->send_psn + packets(q, w)) & 0xffffff;
		t->recv_psn = q->send_psn;
	}
	if (status & MX_REMOTE && !q->dci && q->type != IBV_QPT_UC)
		refuse(t, status);
	return status & MX_REMOTE && q->type == IBV_QPT_UC ? MX_DONE : status;
}

/* A request that has not been answered, or not yet. */
static int wait(struct mx_qp *q, struct mx_pending *p, int status, unsigned rnr_timer)
{
	return status == MX_LOST ? silence(q, p) : status == MX_NOT_READY ? not_ready(q, rnr_timer, p) : status;
}

int mx_execute(struct mx_qp *q, struct mx_wqe *w, struct mx_pending *p)
{
	int status = check(q, w);
	enum sim_entry entry;
	unsigned rnr_timer;
	struct mx_qp *t;

	if (p->message) {
		status = mx_answer(p, &rnr_timer);
		return wait(q, p, status, rnr_timer);
	}
	if (status || w->opcode == MLX5_OPCODE_NOP)
		return status;
	if (p->until && sim_now() < p->until)
		return MX_WAIT;
	if (w->opcode == MLX5_OPCODE_UMR)
		return mx_umr(q, w);
	if (q->type == IBV_QPT_UD)
		return mx_send_datagram(q, w, p);
	entry = sim_enter(destination(q, w));
	if (entry != SIM_IN)
		return entry == SIM_BUSY ? MX_WAIT : silence(q, p);
	t = q->dci ? target(q, w) : mx_connected(q);
	if (!t)
		status = silence(q, p);
	else if (q->dci && t->dc_key != be64toh(w->av.key.dc_key))
		status = MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	else
		status = wait(q, p, mx_conclude(q, t, w, request(q, t, w, p)), t->attr.min_rnr_timer);
	sim_leave();
	return status;
}
