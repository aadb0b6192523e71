//go:build simhca && linux && cgo

/* Receives, of a queue of one's own or a shared one. */
#include "mlx5.h"

static void scatter(struct mx_qp *q, struct mx_recv *r, const struct mlx5_wqe_data_seg *s, int max)
{
	for (int i = 0; i < max && i < 64; i++) {
		uint64_t n = be32toh(s[i].byte_count);
		uint32_t key = be32toh(s[i].lkey);
		uint8_t *p;

		if (!n && key == MLX5_INVALID_LKEY)
			break;
		n = n ? n : 1ull << 31;
		p = sim_memory(q->o.pd, key, false, be64toh(s[i].addr), n, IBV_ACCESS_LOCAL_WRITE);
		r->protection |= !p;
		r->pieces[r->npieces++] = (struct sim_piece){ p, n };
		r->room += n;
	}
}

static bool take_shared(struct mx_qp *q, struct mx_recv *r)
{
	struct mx_srq *s = q->srq;
	uint16_t posted = mx_load32(s->db);
	struct mlx5_wqe_srq_next_seg *w;

	if (posted == s->taken)
		return false;
	w = (struct mlx5_wqe_srq_next_seg *)(s->buf + ((size_t)s->head << s->shift));
	r->index = s->head;
	scatter(q, r, (const struct mlx5_wqe_data_seg *)(w + 1), s->max_sge);
	s->head = be16toh(w->next_wqe_index) & (s->count - 1);
	s->taken++;
	if (s->limit && (uint16_t)(posted - s->taken) < s->limit) {
		s->limit = 0;
		sim_async_event(&s->o, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	return true;
}

/* Takes the next receive; false: there is none. */
bool mx_take(struct mx_qp *q, struct mx_recv *r)
{
	uint16_t posted;

	memset(r, 0, sizeof(*r));
	if (q->srq)
		return take_shared(q, r);
	if (!q->rq_count)
		return false;
	posted = mx_load32(&q->db[0]);
	if (posted == q->rq_next)
		return false;
	if ((uint16_t)(posted - q->rq_next) > q->rq_count)
		sim_trace(1, "queue pair %#x: more receives than its queue holds", q->qpn);
	r->index = q->rq_next & (q->rq_count - 1);
	scatter(q, r, (const struct mlx5_wqe_data_seg *)(q->rq + ((size_t)r->index << q->rq_shift)), 1 << (q->rq_shift - 4));
	r->index = q->rq_next++;
	return true;
}

void mx_flush_receives(struct mx_qp *q)
{
	struct mx_recv r;

	while (!q->srq && mx_take(q, &r)) {
		struct mlx5_cqe64 e = {};

		mx_receive_done(q, &r, &e, 0, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	}
}
