//go:build simhca && linux && cgo

/* Changes of a queue pair's state and attributes. */
#include "mlx5.h"

/* Of FLUSH, which the device has not: mlx5_ib looks away, as rdma-core's tests expect. */
enum { FLUSH_RIGHTS = 3 << 8 };

/* mlx5_ib takes exactly these attributes for a DCT, and no way back. */
static bool dct_may(int from, int to, uint32_t mask)
{
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		return mask == (IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU);
	return false;
}

static bool dci_may(int from, int to, uint32_t mask)
{
	uint32_t need = IBV_QP_STATE, may = 0;

	if (to == IBV_QPS_RESET) {
		;
	} else if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) {
		need |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	} else if (from == IBV_QPS_INIT && to == IBV_QPS_INIT) {
		may = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	} else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
		need |= IBV_QP_PATH_MTU;
		may = IBV_QP_PKEY_INDEX | IBV_QP_AV;
	} else if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
		need |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN;
		may = IBV_QP_MIN_RNR_TIMER;
	} else if (from == IBV_QPS_RTS && to == IBV_QPS_RTS) {
		may = IBV_QP_MIN_RNR_TIMER;
	} else if (from == IBV_QPS_RESET || to != IBV_QPS_ERR) {
		return false;
	}
	return (mask & need) == need && !(mask & ~(need | may));
}

/* The driver has no command that drains a send queue. */
static bool driver_may(int from, int to) { return to != IBV_QPS_SQD && from != IBV_QPS_SQD; }

static int check(struct mx_qp *q, const struct ib_uverbs_modify_qp *a, int from, int to)
{
	uint32_t m = a->attr_mask;
	bool may = q->dct ? dct_may(from, to, m) : q->dci ? dci_may(from, to, m) : sim_qp_may(q->type, from, to, m) && driver_may(from, to);

	if (!may || from != q->state)
		return sim_refuse(EINVAL, "change of queue pair %#x in state %d: from %d to %d with attributes %#x", q->qpn, q->state, from, to, m);
	if ((m & IBV_QP_PORT && a->port_num != 1) || (m & IBV_QP_PKEY_INDEX && a->pkey_index))
		return sim_refuse(EINVAL, "queue pair %#x: port %u, P_Key index %u", q->qpn, a->port_num, a->pkey_index);
	if ((m & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > MX_MAX_READS) || (m & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > MX_MAX_READS))
		return sim_refuse(EINVAL, "queue pair %#x: %u and %u READs", q->qpn, a->max_rd_atomic, a->max_dest_rd_atomic);
	if (m & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return sim_refuse(EINVAL, "queue pair %#x: MTU %u", q->qpn, a->path_mtu);
	if ((m & IBV_QP_TIMEOUT && a->timeout > 31) || (m & IBV_QP_RETRY_CNT && a->retry_cnt > 7) || (m & IBV_QP_RNR_RETRY && a->rnr_retry > 7) ||
	    (m & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31))
		return sim_refuse(EINVAL, "queue pair %#x: timers", q->qpn);
	if (m & IBV_QP_ACCESS_FLAGS && a->qp_access_flags & ~(MX_RIGHTS | FLUSH_RIGHTS))
		return sim_refuse(EINVAL, "queue pair %#x: rights %#x", q->qpn, a->qp_access_flags);
	if (m & IBV_QP_ALT_PATH)
		return sim_refuse(EOPNOTSUPP, "queue pair %#x: an alternate path", q->qpn);
	if (m & IBV_QP_AV) /* that of a DC queue pair names no peer */
		return mx_check_path(q->o.ctx, q->dct || q->dci ? NULL : a->dest.dgid, a->dest.is_global, a->dest.sgid_index, a->dest.port_num);
	return 0;
}

static void set(struct mx_qp *q, const struct ib_uverbs_modify_qp *a)
{
	uint32_t m = a->attr_mask;

#define SET(bit, field) do { if (m & (bit)) q->attr.field = a->field; } while (0)
	SET(IBV_QP_PATH_MTU, path_mtu);
	SET(IBV_QP_QKEY, qkey);
	SET(IBV_QP_RQ_PSN, rq_psn);
	SET(IBV_QP_SQ_PSN, sq_psn);
	SET(IBV_QP_DEST_QPN, dest_qp_num);
	SET(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	SET(IBV_QP_AV, dest);
	SET(IBV_QP_PKEY_INDEX, pkey_index);
	SET(IBV_QP_PORT, port_num);
	SET(IBV_QP_TIMEOUT, timeout);
	SET(IBV_QP_RETRY_CNT, retry_cnt);
	SET(IBV_QP_RNR_RETRY, rnr_retry);
	SET(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	SET(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	SET(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	SET(IBV_QP_PATH_MIG_STATE, path_mig_state);
#undef SET
	if (m & IBV_QP_SQ_PSN)
		q->send_psn = a->sq_psn & 0xffffff;
	if (m & IBV_QP_RQ_PSN)
		q->recv_psn = a->rq_psn & 0xffffff;
}

/* The program sets the doorbell records to 0 itself. */
static void reset(struct mx_qp *q)
{
	q->sq_next = q->rq_next = 0;
	mx_recall_all(q);
	q->failed = 0;
	q->npending = 0;
	q->nin_error = 0;
	q->last_receive_told = false;
	memset(&q->attr, 0, sizeof(q->attr));
}

/* What the device takes of a peer's offer: the options that it has too, in the older version. */
static uint32_t common_options(uint32_t offer)
{
	uint32_t version = offer & MX_ECE_VERSION, mine = MX_ECE & MX_ECE_VERSION;

	return (version < mine ? version : mine) | (offer & MX_ECE & ~MX_ECE_VERSION);
}

int mx_modify_qp(struct sim_ctx *c, bool ex, struct sim_io *io)
{
	SIM_IN(ib_uverbs_modify_qp, a);
	struct mx_qp *q = sim_get(c, a.qp_handle, SIM_QP);
	struct ib_uverbs_ex_modify_qp_resp r = { .response_length = sizeof(r) };
	SIM_DRIVER_IN(mlx5_ib_modify_qp, ua);
	struct mlx5_ib_modify_qp_resp u = { .response_length = sizeof(u) };
	int from, to, err;

	if (!q)
		return EINVAL;
	from = a.attr_mask & IBV_QP_CUR_STATE ? a.cur_qp_state : q->state;
	to = a.attr_mask & IBV_QP_STATE ? a.qp_state : from;
	sim_trace(2, "queue pair %#x: from %d to %d with attributes %#x", q->qpn, from, to, a.attr_mask);
	err = check(q, &a, from, to);
	if (err)
		return err;
	set(q, &a);
	if (to == IBV_QPS_ERR && q->state != IBV_QPS_ERR)
		mx_fail(q, 0);
	if (to == IBV_QPS_RESET)
		reset(q);
	if (to == IBV_QPS_RTS)
		sim_watch_posts(&q->o);
	q->state = to;
	if (ua.ece_options)
		q->ece = common_options(ua.ece_options);
	if (ex) {
		u.ece_options = q->ece;
		u.dctn = q->dct ? q->qpn : 0;
		SIM_OUT(r);
		SIM_DRIVER_OUT(u);
	}
	return 0;
}

int mx_query_qp(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_query_qp, a);
	struct mx_qp *q = sim_get(c, a.qp_handle, SIM_QP);
	struct ib_uverbs_query_qp_resp r;

	if (!q)
		return EINVAL;
	/* What mlx5_ib answers for a DCT before it is made in the device, and never after. */
	if (q->dct && q->state != IBV_QPS_RTR)
		return sim_refuse(EINVAL, "query of a DCT in state %d", q->state);
	r = (struct ib_uverbs_query_qp_resp){ .dest = q->attr.dest, .max_send_wr = q->made.max_send_wr, .max_recv_wr = q->rq_count,
		.max_send_sge = q->made.max_send_sge, .max_recv_sge = q->made.max_recv_sge, .max_inline_data = q->made.max_inline_data,
		.qkey = q->attr.qkey, .rq_psn = q->attr.rq_psn, .sq_psn = q->attr.sq_psn, .dest_qp_num = q->attr.dest_qp_num,
		.qp_access_flags = q->attr.qp_access_flags, .pkey_index = q->attr.pkey_index, .qp_state = q->state, .cur_qp_state = q->state,
		.path_mtu = q->attr.path_mtu, .path_mig_state = q->attr.path_mig_state, .max_rd_atomic = q->attr.max_rd_atomic,
		.max_dest_rd_atomic = q->attr.max_dest_rd_atomic, .min_rnr_timer = q->attr.min_rnr_timer, .port_num = q->attr.port_num,
		.timeout = q->attr.timeout, .retry_cnt = q->attr.retry_cnt, .rnr_retry = q->attr.rnr_retry, .sq_sig_all = q->made.sq_sig_all };
	SIM_OUT(r);
	return 0;
}
