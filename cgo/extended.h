/*
 * The extended halves of libibverbs: posting by ibv_wr_* calls, and completion
 * queues that are read field by field. Each batch is one crossing, and all of
 * start to complete is inside one call: providers hold the queue's lock
 * between the two.
 */
#ifndef GOVERBS_EXTENDED_H
#define GOVERBS_EXTENDED_H

#include <infiniband/mlx5dv.h>

/*
 * How a queue pair posts: by ibv_post_send, by ibv_wr_*, by those of rxe, or,
 * any other value, by ibv_wr_* with the calls of the struct mlx5dv_qp_ex at that
 * address. rxe's ibv_wr_set_sge_list takes all pieces to be as long as the first
 * before rdma-core 64: lists of unequal pieces are refused.
 */
#define GV_POST_PLAIN    0
#define GV_POST_EXTENDED 1
#define GV_POST_RXE      2

/*
 * How a queue is polled: by ibv_poll_cq; as an extended one; or as an extended
 * one without ibv_next_poll, which rxe's provider before rdma-core 59 ends by
 * giving up a lock that ibv_end_poll gives up again.
 */
#define GV_POLL_PLAIN    0
#define GV_POLL_EXTENDED 1
#define GV_POLL_RXE      2

/* Opcodes of work requests that struct ibv_send_wr does not know. */
#define GV_WR_FLUSH        14 /* IBV_WR_FLUSH since rdma-core 45 */
#define GV_WR_ATOMIC_WRITE 15 /* IBV_WR_ATOMIC_WRITE since rdma-core 43 */
#define GV_WR_RAW          0x100 /* a work queue entry of mlx5 */

/*
 * Where a request of a queue pair without a connection goes, if it needs
 * remote memory too (DC, SRD). It lies over bind_mw and tso of struct
 * ibv_send_wr, which such queue pairs do not have.
 */
struct gv_dest {
	struct ibv_ah *ah;
	uint32_t qpn; /* or DCT number */
	uint32_t qkey;
	uint64_t dc_key;
	uint32_t stream; /* of the initiator, from 1 on; 0: none */
};

_Static_assert(sizeof(struct gv_dest) <= sizeof(((struct ibv_send_wr *)0)->bind_mw), "destination");

/*
 * Where struct ibv_qp_ex has wr_flush, which came with rdma-core 45: 0 with
 * headers before that. See FlushOffset in flush_linux.go.
 */
extern size_t gv_flush_at;

typedef void gv_flush_fn(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level);

/* What of a request is its data: set_sge and set_inline_data. */
static inline void gv_wr_data(struct ibv_qp_ex *x, struct ibv_send_wr *w)
{
	if (w->send_flags & IBV_SEND_INLINE) {
		struct ibv_data_buf bufs[32];

		if (w->num_sge == 1) {
			ibv_wr_set_inline_data(x, (void *)w->sg_list->addr, w->sg_list->length);
			return;
		}
		for (int i = 0; i < w->num_sge && i < 32; i++) {
			bufs[i].addr = (void *)w->sg_list[i].addr;
			bufs[i].length = w->sg_list[i].length;
		}
		ibv_wr_set_inline_data_list(x, w->num_sge < 32 ? w->num_sge : 32, bufs);
		return;
	}
	if (w->num_sge == 1)
		ibv_wr_set_sge(x, w->sg_list->lkey, w->sg_list->addr, w->sg_list->length);
	else
		ibv_wr_set_sge_list(x, w->num_sge, w->sg_list);
}

static inline int gv_wr_one(struct ibv_qp_ex *x, struct mlx5dv_qp_ex *m, struct ibv_send_wr *w)
{
	struct gv_dest *to = (struct gv_dest *)&w->bind_mw;

	x->wr_id = w->wr_id;
	x->wr_flags = w->send_flags; /* inline too: rxe wants to be told, others look away */
	switch ((int)w->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr, w->imm_data);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(x);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(x, w->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(x, w->invalidate_rkey);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(x, w->wr.rdma.rkey, w->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add, w->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(x, w->invalidate_rkey);
		return 0;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(x, w->bind_mw.mw, w->bind_mw.rkey, &w->bind_mw.bind_info);
		return 0;
	case GV_WR_ATOMIC_WRITE:
		/* The value lies in the request itself, where swap would be. */
		ibv_wr_atomic_write(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, &w->wr.atomic.swap);
		return 0;
	case GV_WR_FLUSH:
		if (!gv_flush_at)
			return EOPNOTSUPP;
		(*(gv_flush_fn **)((char *)x + gv_flush_at))(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add,
							     w->wr.atomic.swap & 0xff, w->wr.atomic.swap >> 8 & 0xff);
		return 0;
	case GV_WR_RAW:
		if (!m)
			return EOPNOTSUPP;
		mlx5dv_wr_raw_wqe(m, (const void *)w->wr.rdma.remote_addr);
		return 0;
	default:
		return EOPNOTSUPP;
	}
	if (m && to->ah) {
		if (to->stream)
			mlx5dv_wr_set_dc_addr_stream(m, to->ah, to->qpn, to->dc_key, to->stream);
		else
			mlx5dv_wr_set_dc_addr(m, to->ah, to->qpn, to->dc_key);
	} else if (x->qp_base.qp_type == IBV_QPT_UD) {
		ibv_wr_set_ud_addr(x, w->wr.ud.ah, w->wr.ud.remote_qpn, w->wr.ud.remote_qkey);
	} else if (x->qp_base.qp_type == IBV_QPT_DRIVER) {
		ibv_wr_set_ud_addr(x, to->ah, to->qpn, to->qkey);
	}
	gv_wr_data(x, w);
	return 0;
}

static inline int gv_unequal(struct ibv_send_wr *w)
{
	for (int i = 1; i < w->num_sge; i++)
		if (w->sg_list[i].length != w->sg_list[0].length)
			return 1;
	return 0;
}

/* All of a chain or nothing, unlike ibv_post_send. */
static inline uint64_t gv_post_extended(uintptr_t qp, uintptr_t how, struct ibv_send_wr *wr, uint32_t n)
{
	struct ibv_qp_ex *x = (struct ibv_qp_ex *)qp;
	struct mlx5dv_qp_ex *m = how <= GV_POST_RXE ? NULL : (struct mlx5dv_qp_ex *)how;
	int err = 0;

	ibv_wr_start(x);
	for (uint32_t i = 0; i < n && !err; i++)
		err = how == GV_POST_RXE && gv_unequal(&wr[i]) ? EOPNOTSUPP : gv_wr_one(x, m, &wr[i]);
	if (err)
		ibv_wr_abort(x);
	else
		err = ibv_wr_complete(x);
	return err ? (uint32_t)err : (uint64_t)n << 32;
}

/* A completion with what only extended completion queues tell. */
struct gv_wc_ex {
	struct ibv_wc wc;
	uint64_t timestamp;  /* ticks of the device's clock */
	uint64_t wall_clock; /* nanoseconds since the epoch */
};

static inline void gv_read_wc(struct ibv_cq_ex *x, struct ibv_wc *w)
{
	memset(w, 0, sizeof(*w));
	w->wr_id = x->wr_id;
	w->status = x->status;
	w->qp_num = ibv_wc_read_qp_num(x);
	if (x->status != IBV_WC_SUCCESS) {
		w->vendor_err = ibv_wc_read_vendor_err(x);
		return;
	}
	w->opcode = ibv_wc_read_opcode(x);
	w->wc_flags = ibv_wc_read_wc_flags(x);
	w->byte_len = ibv_wc_read_byte_len(x);
	if (w->opcode & IBV_WC_RECV) {
		if (w->wc_flags & IBV_WC_WITH_INV)
			w->invalidated_rkey = ibv_wc_read_invalidated_rkey(x);
		else if (w->wc_flags & IBV_WC_WITH_IMM)
			w->imm_data = ibv_wc_read_imm_data(x);
		w->src_qp = ibv_wc_read_src_qp(x);
		w->slid = ibv_wc_read_slid(x);
		w->sl = ibv_wc_read_sl(x);
		w->dlid_path_bits = ibv_wc_read_dlid_path_bits(x);
	}
}

/*
 * Takes up to n completions; each is written to the start of stride bytes.
 * fields are the times that the queue was made for: with them there must be
 * room for a struct gv_wc_ex.
 */
static inline int gv_poll_extended(uintptr_t cq, int how, uint64_t fields, void *out, size_t stride, int n)
{
	struct ibv_cq_ex *x = (struct ibv_cq_ex *)cq;
	struct ibv_poll_cq_attr attr = {};
	int got = 0;
	int err;

	if (how == GV_POLL_RXE && n > 1) {
		int one = 1;

		for (; got < n && one == 1; got += one) {
			one = gv_poll_extended(cq, how, fields, (char *)out + got * stride, stride, 1);
			if (one < 0)
				return got ? got : one;
		}
		return got;
	}
	err = ibv_start_poll(x, &attr);
	if (err)
		return err == ENOENT ? 0 : -err;
	do {
		struct gv_wc_ex *w = (struct gv_wc_ex *)((char *)out + got * stride);

		gv_read_wc(x, &w->wc);
		if (stride == sizeof(*w)) {
			w->timestamp = fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ? ibv_wc_read_completion_ts(x) : 0;
			w->wall_clock = fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK ?
						ibv_wc_read_completion_wallclock_ns(x) : 0;
		}
		got++;
	} while (got < n && !ibv_next_poll(x));
	ibv_end_poll(x);
	return got;
}

#endif
