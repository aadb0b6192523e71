/*
 * The extended halves of libibverbs: posting by ibv_wr_* calls, and completion
 * queues that are read field by field. Each batch is one crossing, and all of
 * start to complete is inside one call: providers hold the queue's lock
 * between the two.
 */
#ifndef GOVERBS_EXTENDED_H
#define GOVERBS_EXTENDED_H

#include <errno.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include "credits.h"

/*
 * How a queue pair posts: by ibv_post_send, or, any other value, by ibv_wr_* and
 * with the struct gv_sq at that address.
 */
#define GV_POST_PLAIN 0

/*
 * How a queue is polled: by ibv_poll_cq; as an extended one; or as an extended
 * one without ibv_next_poll, which rxe's provider before rdma-core 59 ends by
 * giving up a lock that ibv_end_poll gives up again. Any other value is the
 * address of a struct gv_cq, which says how and credits send queues.
 */
#define GV_POLL_PLAIN    0
#define GV_POLL_EXTENDED 1
#define GV_POLL_RXE      2

/* Opcodes of work requests that struct ibv_send_wr does not know. */
#define GV_WR_FLUSH        14 /* IBV_WR_FLUSH since rdma-core 45 */
#define GV_WR_ATOMIC_WRITE 15 /* IBV_WR_ATOMIC_WRITE since rdma-core 43 */
#define GV_WR_RAW          0x100 /* a work queue entry of mlx5 */

/* What a queue pair is made for, where the headers of rdma-core 44 lack it. */
#define GV_OP_FLUSH (1ull << 11) /* IBV_QP_EX_WITH_FLUSH since rdma-core 45 */
#define GV_OP_RAW   (1ull << 62) /* raw work queue entries of mlx5 */

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

static inline gv_flush_fn *gv_flush(struct ibv_qp_ex *x) { return *(gv_flush_fn **)((char *)x + gv_flush_at); }

/*
 * rxe's ibv_wr_set_sge_list takes all pieces to be as long as the first before
 * rdma-core 64: such lists are refused there.
 */
static inline int gv_unequal(struct ibv_send_wr *w)
{
	for (int i = 1; i < w->num_sge; i++)
		if (w->sg_list[i].length != w->sg_list[0].length)
			return 1;
	return 0;
}

/* ibv_wr_set_inline_data_list takes another structure than requests have. */
#define GV_MAX_INLINE_PIECES 32

/* Some providers answer negative errnos (erdma). */
static inline int gv_errno(int err) { return err < 0 ? -err : err; }

/* What of a request is its data: set_sge and set_inline_data. */
static inline void gv_wr_data(struct ibv_qp_ex *x, struct ibv_send_wr *w)
{
	if (w->send_flags & IBV_SEND_INLINE) {
		struct ibv_data_buf bufs[GV_MAX_INLINE_PIECES];

		if (w->num_sge == 1) {
			ibv_wr_set_inline_data(x, (void *)w->sg_list->addr, w->sg_list->length);
			return;
		}
		for (int i = 0; i < w->num_sge; i++) {
			bufs[i].addr = (void *)w->sg_list[i].addr;
			bufs[i].length = w->sg_list[i].length;
		}
		ibv_wr_set_inline_data_list(x, w->num_sge, bufs);
		return;
	}
	if (w->num_sge == 1)
		ibv_wr_set_sge(x, w->sg_list->lkey, w->sg_list->addr, w->sg_list->length);
	else
		ibv_wr_set_sge_list(x, w->num_sge, w->sg_list);
}

/* The flag by which a queue pair is made for an opcode, or 0. */
static inline uint64_t gv_op(uint32_t opcode)
{
	switch (opcode) {
	case GV_WR_FLUSH:
		return GV_OP_FLUSH;
	case GV_WR_ATOMIC_WRITE:
		return IBV_QP_EX_WITH_ATOMIC_WRITE;
	case GV_WR_RAW:
		return GV_OP_RAW;
	}
	/* The others are in the order of enum ibv_wr_opcode. */
	return opcode <= IBV_WR_SEND_WITH_INV ? 1ull << opcode : 0;
}

_Static_assert(1ull << IBV_WR_RDMA_WRITE_WITH_IMM == IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM &&
	       1ull << IBV_WR_SEND_WITH_IMM == IBV_QP_EX_WITH_SEND_WITH_IMM &&
	       1ull << IBV_WR_RDMA_READ == IBV_QP_EX_WITH_RDMA_READ &&
	       1ull << IBV_WR_ATOMIC_FETCH_AND_ADD == IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD &&
	       1ull << IBV_WR_BIND_MW == IBV_QP_EX_WITH_BIND_MW &&
	       1ull << IBV_WR_SEND_WITH_INV == IBV_QP_EX_WITH_SEND_WITH_INV, "operations");

/*
 * Which of the operations that a queue pair was made for can be called: a
 * provider sets the pointers of those that it was asked for, or of all that it
 * has, and a pointer that is not set must not be called.
 */
static inline uint64_t gv_callable(struct ibv_qp_ex *x, struct mlx5dv_qp_ex *m, uint64_t ops)
{
	uint64_t can = 0;

	can |= x->wr_rdma_write ? IBV_QP_EX_WITH_RDMA_WRITE : 0;
	can |= x->wr_rdma_write_imm ? IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM : 0;
	can |= x->wr_send ? IBV_QP_EX_WITH_SEND : 0;
	can |= x->wr_send_imm ? IBV_QP_EX_WITH_SEND_WITH_IMM : 0;
	can |= x->wr_rdma_read ? IBV_QP_EX_WITH_RDMA_READ : 0;
	can |= x->wr_atomic_cmp_swp ? IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP : 0;
	can |= x->wr_atomic_fetch_add ? IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD : 0;
	can |= x->wr_local_inv ? IBV_QP_EX_WITH_LOCAL_INV : 0;
	can |= x->wr_bind_mw ? IBV_QP_EX_WITH_BIND_MW : 0;
	can |= x->wr_send_inv ? IBV_QP_EX_WITH_SEND_WITH_INV : 0;
	can |= x->wr_atomic_write ? IBV_QP_EX_WITH_ATOMIC_WRITE : 0;
	can |= m && m->wr_raw_wqe ? GV_OP_RAW : 0;
	/* Only a provider that knows the flag has the pointer at all. */
	if (ops & GV_OP_FLUSH && gv_flush_at && gv_flush(x))
		can |= GV_OP_FLUSH;
	return can & ops;
}

/* The errno for a request that must not be begun, or 0. */
static inline int gv_check(struct ibv_qp_ex *x, struct gv_sq *s, struct ibv_send_wr *w)
{
	struct gv_dest *to = (struct gv_dest *)&w->bind_mw;

	if (!(s->ops & gv_op(w->opcode)))
		return EOPNOTSUPP;
	switch ((int)w->opcode) {
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
	case GV_WR_ATOMIC_WRITE:
	case GV_WR_FLUSH:
	case GV_WR_RAW:
		return 0;
	}
	if (x->qp_base.qp_type == IBV_QPT_UD || (x->qp_base.qp_type == IBV_QPT_DRIVER && !s->m)) {
		if (!x->wr_set_ud_addr)
			return EOPNOTSUPP;
	} else if (s->m && to->ah && x->qp_base.qp_type == IBV_QPT_DRIVER) {
		if (to->stream ? !s->m->wr_set_dc_addr_stream : !s->m->wr_set_dc_addr)
			return EOPNOTSUPP;
	}
	if (w->send_flags & IBV_SEND_INLINE) {
		if (w->num_sge > GV_MAX_INLINE_PIECES)
			return EINVAL;
		return (w->num_sge == 1 ? x->wr_set_inline_data != NULL : x->wr_set_inline_data_list != NULL) ? 0 : EOPNOTSUPP;
	}
	if (w->num_sge == 1)
		return x->wr_set_sge ? 0 : EOPNOTSUPP;
	return !x->wr_set_sge_list || (s->rxe && gv_unequal(w)) ? EOPNOTSUPP : 0;
}

/* Begins a request that gv_check has nothing against, and fills it in. */
static inline void gv_wr_one(struct ibv_qp_ex *x, struct mlx5dv_qp_ex *m, struct ibv_send_wr *w)
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
		return;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(x, w->bind_mw.mw, w->bind_mw.rkey, &w->bind_mw.bind_info);
		return;
	case GV_WR_ATOMIC_WRITE:
		/* The value lies in the request itself, where swap would be. */
		ibv_wr_atomic_write(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, &w->wr.atomic.swap);
		return;
	case GV_WR_FLUSH:
		gv_flush(x)(x, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add, w->wr.atomic.swap & 0xff,
			    w->wr.atomic.swap >> 8 & 0xff);
		return;
	case GV_WR_RAW:
		mlx5dv_wr_raw_wqe(m, (const void *)w->wr.rdma.remote_addr);
		return;
	}
	if (m && x->qp_base.qp_type == IBV_QPT_DRIVER) {
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
}

/* Whether a request completes when it succeeds. */
static inline int gv_signaled(struct ibv_send_wr *w)
{
	/* A raw entry says so itself: fm_ce_se in its control segment. */
	if ((int)w->opcode == GV_WR_RAW)
		return (((const uint8_t *)w->wr.rdma.remote_addr)[11] & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
	return (w->send_flags & IBV_SEND_SIGNALED) != 0;
}

/*
 * All of a chain or nothing, unlike ibv_post_send. Whatever can be refused is
 * refused before the first request is begun.
 */
static inline uint64_t gv_post_extended(uintptr_t qp, struct gv_sq *s, struct ibv_send_wr *wr, uint32_t n)
{
	struct ibv_qp_ex *x = (struct ibv_qp_ex *)qp;
	uint32_t head, next;
	int err;

	for (uint32_t i = 0; i < n; i++) {
		err = gv_check(x, s, &wr[i]);
		if (err)
			return (uint32_t)err;
	}
	ibv_wr_start(x);
	if (!gv_room(s, n)) {
		ibv_wr_abort(x);
		return ENOMEM;
	}
	head = s->head;
	next = s->next;
	for (uint32_t i = 0; i < n; i++) {
		struct gv_dest *to = (struct gv_dest *)&wr[i].bind_mw;

		gv_take(s, head + i, wr[i].wr_id, s->order == GV_BY_STREAM ? to->stream : head, gv_signaled(&wr[i]));
		gv_wr_one(x, s->m, &wr[i]);
	}
	gv_store(&s->head, head + n); /* before they can complete */
	err = ibv_wr_complete(x);
	if (!err)
		return (uint64_t)n << 32;
	gv_untake(s, head, next);
	return (uint32_t)gv_errno(err);
}

/* A completion with what only extended completion queues tell. */
struct gv_wc_ex {
	struct ibv_wc wc;
	uint64_t timestamp;  /* ticks of the device's clock */
	uint64_t wall_clock; /* nanoseconds since the epoch */
	uint8_t sender[16];  /* GID, or zeroes */
};

/* A field of a completion that only EFA has: see gv_create_cq_ex. */
#define GV_FIELD_SENDER (1ull << 62)

/* The GID of a received datagram's sender (driver.c). */
int gv_read_sender(struct ibv_cq_ex *x, void *gid);

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
	if (gv_is_receive(w)) {
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
 * What a poll of a queue answers: a count, or -errno. mlx5, mlx4 and hns answer
 * -1 and -2 for an entry that they cannot read, which are no errnos.
 */
static inline int gv_poll_error(int err)
{
	err = gv_errno(err);
	return err == 1 || err == 2 ? -EIO : -err;
}

/*
 * Takes up to n completions; each is written to the start of stride bytes.
 * fields are the times that the queue was made for: with them there must be
 * room for a struct gv_wc_ex. An error behind completions goes to *pending.
 */
static inline int gv_read_queue(uintptr_t cq, int how, uint64_t fields, void *out, size_t stride, int n, int *pending)
{
	struct ibv_cq_ex *x = (struct ibv_cq_ex *)cq;
	struct ibv_poll_cq_attr attr = {};
	int got = 0;
	int err;

	if (how == GV_POLL_RXE && n > 1) {
		int one = 1;

		for (; got < n && one == 1; got += one) {
			one = gv_read_queue(cq, how, fields, (char *)out + got * stride, stride, 1, pending);
			if (one < 0 && got) {
				*pending = one;
				return got;
			}
			if (one < 0)
				return one;
		}
		return got;
	}
	err = ibv_start_poll(x, &attr);
	if (err) /* the lock is not held */
		return err == ENOENT ? 0 : gv_poll_error(err);
	do {
		struct gv_wc_ex *w = (struct gv_wc_ex *)((char *)out + got * stride);

		gv_read_wc(x, &w->wc);
		if (stride == sizeof(*w)) {
			w->timestamp = fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ? ibv_wc_read_completion_ts(x) : 0;
			w->wall_clock = fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK ?
						ibv_wc_read_completion_wallclock_ns(x) : 0;
			/* None for a sender to whom there is an address handle: slid is its number. */
			if (!(fields & GV_FIELD_SENDER) || w->wc.status != IBV_WC_SUCCESS || !gv_is_receive(&w->wc) ||
			    gv_read_sender(x, w->sender))
				memset(w->sender, 0, sizeof(w->sender));
		}
		got++;
	} while (got < n && !(err = ibv_next_poll(x)));
	ibv_end_poll(x);
	if (got < n && err != ENOENT)
		*pending = gv_poll_error(err);
	return got;
}

/* Takes completions, plain or extended, and credits the send queues. */
static inline int gv_take_completions(uintptr_t cq, uintptr_t path, int extended, uint64_t fields, void *out, size_t stride, int n)
{
	struct gv_cq *c = path > GV_POLL_RXE ? (struct gv_cq *)path : NULL;
	int how = c ? c->how : (int)path;
	int pending = 0;
	int got;

	if (c && __atomic_load_n(&c->pending, __ATOMIC_RELAXED)) {
		got = __atomic_exchange_n(&c->pending, 0, __ATOMIC_RELAXED);
		if (got)
			return got;
	}
	if (how != GV_POLL_PLAIN || extended) {
		got = gv_read_queue(cq, how, fields, out, stride, n, &pending);
		if (c && pending)
			__atomic_store_n(&c->pending, pending, __ATOMIC_RELAXED);
	} else {
		got = ibv_poll_cq((struct ibv_cq *)cq, n, out);
		if (got < 0)
			got = gv_poll_error(got);
	}
	if (c && got > 0 && __atomic_load_n(&c->counted, __ATOMIC_ACQUIRE))
		gv_completed(c, out, stride, got);
	return got;
}

static inline int gv_poll_extended(uintptr_t cq, uintptr_t path, uint64_t fields, void *out, size_t stride, int n)
{
	return gv_take_completions(cq, path, 1, fields, out, stride, n);
}

#endif
