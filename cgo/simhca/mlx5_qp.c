//go:build simhca && linux && cgo

/*
 * The send queue: which request is next, and what a failed one does to those
 * behind it. Requests are executed in order, those of a DCI with streams in
 * each stream's order.
 */
#include "mlx5.h"

/* The device that has a queue pair of that number, or NULL. */
struct sim_device *mx_device_of(struct sim_node *n, uint32_t qpn)
{
	struct sim_obj *q = sim_any(n, qpn - mx_qpn0(n), SIM_QP);

	return q ? q->ctx->dev : NULL;
}

struct mx_qp *mx_qp_of(struct sim_device *d, uint32_t qpn)
{
	struct mx_qp *q = sim_any(d->node, qpn - mx_qpn0(d->node), SIM_QP);

	return q && q->o.ctx->dev == d ? q : NULL;
}

struct sim_obj *mx_find_qp(struct sim_device *d, uint32_t qpn)
{
	struct mx_qp *q = mx_qp_of(d, qpn);

	return q ? &q->o : NULL;
}

/* The queue pair is in error from now on; event is what the program is told, or 0. */
void mx_fail(struct mx_qp *q, uint32_t event)
{
	if (q->state == IBV_QPS_ERR || q->state == IBV_QPS_RESET)
		return;
	sim_trace(2, "queue pair %#x is in error", q->qpn);
	q->state = IBV_QPS_ERR;
	if (event)
		sim_async_event(&q->o, event);
	if (q->srq && !q->dct && !q->last_receive_told) {
		q->last_receive_told = true;
		sim_async_event(&q->o, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
	mx_flush_receives(q);
}

/* A DCT that is lost sends no reply and takes no change. */
void mx_fail_qp(struct sim_obj *o)
{
	struct mx_qp *q = (struct mx_qp *)o;

	if (!q->dct) {
		mx_fail(q, IBV_EVENT_QP_FATAL);
		return;
	}
	q->state = IBV_QPS_ERR;
	sim_async_event(o, IBV_EVENT_QP_FATAL);
}

/* enum ibv_wc_status as a syndrome. */
static int syndrome(int status)
{
	static const uint8_t of[] = {
		[IBV_WC_LOC_LEN_ERR] = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, [IBV_WC_LOC_QP_OP_ERR] = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
		[IBV_WC_LOC_PROT_ERR] = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, [IBV_WC_WR_FLUSH_ERR] = MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
		[IBV_WC_BAD_RESP_ERR] = MLX5_CQE_SYNDROME_BAD_RESP_ERR, [IBV_WC_REM_INV_REQ_ERR] = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
		[IBV_WC_REM_ACCESS_ERR] = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, [IBV_WC_REM_OP_ERR] = MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
		[IBV_WC_RETRY_EXC_ERR] = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, [IBV_WC_RNR_RETRY_EXC_ERR] = MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
		[IBV_WC_REM_ABORT_ERR] = MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR,
	};

	if (status < 0 || status >= (int)sizeof(of) || !of[status])
		return MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
	return of[status];
}

bool mx_stream_in_error(const struct mx_qp *q, uint16_t stream)
{
	for (int i = 0; i < q->nin_error; i++)
		if (q->in_error[i] == stream)
			return true;
	return false;
}

void mx_stream_reset(struct mx_qp *q, uint16_t stream)
{
	for (int i = 0; i < q->nin_error; i++)
		if (q->in_error[i] == stream)
			q->in_error[i--] = q->in_error[--q->nin_error];
}

static bool flushes(const struct mx_qp *q, uint16_t stream)
{
	return q->state == IBV_QPS_ERR || q->state == IBV_QPS_SQE || mx_stream_in_error(q, stream);
}

/* Takes what was posted into the list of requests under way. */
static void fetch(struct mx_qp *q)
{
	uint16_t posted = mx_load32(&q->db[1]);

	if ((uint16_t)(posted - q->sq_next) > q->sq_count)
		sim_trace(1, "queue pair %#x: %u entries posted in a queue of %u", q->qpn, (uint16_t)(posted - q->sq_next), q->sq_count);
	sim_fetched |= q->sq_next != posted;
	while (q->npending < MX_PENDING && q->sq_next != posted) {
		static struct mx_wqe w;
		struct mx_pending *p = &q->pending[q->npending++];

		mx_load(q, q->sq_next, &w);
		*p = (struct mx_pending){ .at = q->sq_next, .blocks = w.segments ? (w.segments + 3) / 4 : 1, .stream = w.stream };
		q->sq_next += p->blocks;
	}
}

/* A request has failed; what becomes of the queue pair. */
static void failed(struct mx_qp *q, const struct mx_pending *p)
{
	/* rdma-core's tests have the whole DCI in error with the last one. */
	if (q->nin_error + 1 < q->bad_streams) {
		q->in_error[q->nin_error++] = p->stream;
		sim_trace(2, "stream %u of queue pair %#x is in error", p->stream, q->qpn);
	} else if (q->type == IBV_QPT_UD || q->type == IBV_QPT_UC) {
		q->state = IBV_QPS_SQE; /* receives go on */
	} else {
		mx_fail(q, 0);
	}
}

/* Executes one of the requests under way, with its completion; false: it waits. */
static bool turn(struct mx_qp *q, int i)
{
	static struct mx_wqe w;
	struct mx_pending *p = &q->pending[i];
	int status, fault;

	mx_load(q, p->at, &w);
	if (flushes(q, p->stream)) {
		if (!mx_recall(p))
			return false;
		mx_request_done(q, &w, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
		return true;
	}
	mx_decode(q, &w);
	fault = p->begun ? 0 : sim_fault_request(&q->o, q->qpn);
	p->begun = true;
	if (!fault && mx_pauses(q, &w, p))
		return false;
	status = fault ? syndrome(fault) : p->early ? MX_DONE : sim_impaired || p->leg ? mx_carry(q, &w, p) : mx_execute(q, &w, p);
	if (status == MX_WAIT)
		return false;
	sim_trace(2, "queue pair %#x, entry %u, opcode %#x, %llu bytes, stream %u: %#x", q->qpn, w.at, w.opcode, (unsigned long long)w.bytes, w.stream, status);
	if (status || (w.flags & 0xc) == MLX5_WQE_CTRL_CQ_UPDATE)
		mx_request_done(q, &w, status & 0xff);
	if (status)
		failed(q, p);
	return true;
}

static bool first_of_stream(const struct mx_qp *q, int i)
{
	for (int k = 0; k < i; k++)
		if (q->pending[k].stream == q->pending[i].stream)
			return false;
	return true;
}

bool mx_qp_work(struct mx_qp *q)
{
	bool busy = false;

	if (q->failed)
		mx_fail(q, q->failed);
	q->failed = 0;
	if (q->dct || q->state < IBV_QPS_RTS || q->state == IBV_QPS_SQD) {
		if (q->state == IBV_QPS_ERR)
			mx_flush_receives(q);
		return false;
	}
	if (q->state == IBV_QPS_ERR)
		mx_flush_receives(q);
	if (!q->sq_count)
		return false;
	if (sim_fault_late(&q->o, q->qpn)) {
		sim_waiting = true;
		return false;
	}
	fetch(q);
	if (sim_impaired)
		mx_send_behind(q);
	for (int i = 0; i < q->npending;) {
		uint16_t before = q->pending[i].steps;

		if (!first_of_stream(q, i)) {
			i++;
			continue;
		}
		if (q->o.ctx->dev->options & MX_LATE_READS && !sim_impaired && !flushes(q, q->pending[i].stream))
			mx_overtake(q, i);
		if (!turn(q, i)) {
			busy |= q->pending[i].steps != before;
			i++;
			continue;
		}
		memmove(q->pending + i, q->pending + i + 1, (--q->npending - i) * sizeof(*q->pending));
		busy = true;
	}
	sim_waiting |= q->npending > 0;
	return busy;
}
