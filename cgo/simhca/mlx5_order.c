//go:build simhca && linux && cgo

/*
 * When the responder does what it is asked for, where the specification leaves that
 * open. SENDs, WRITEs and atomics of a queue pair are executed in their order, and a
 * READ not before those in front of it; but a READ may come late, behind WRITEs and
 * atomics that were posted after it without a fence (sections 9.5 and 10.8.3.3). And
 * the bytes of one READ or WRITE have no order: a processor's bus moves them by cache
 * lines. What others do happens in between.
 */
#include "mlx5.h"

enum {
	LINE = 64,
	MAX_STEPS = 16,             /* of one request: longer ones go by several lines at a time */
	SHORT = 2000, LONG = 300000, /* ns */
};

/* Marsaglia's xorshift. */
static uint32_t dice(void)
{
	static uint32_t x = 2463534242;

	x ^= x << 13;
	x ^= x >> 17;
	return x ^= x << 5;
}

/* Often none, else as long as others need for a request or two, and once in so many times as for a few dozen. */
static uint64_t pause_from(uint64_t now, uint32_t seldom)
{
	uint32_t n = dice();

	return n % 2 ? 0 : now + dice() % (n / 2 % (seldom / 2) ? SHORT : LONG);
}

/* Carries out what a READ lets pass, if it is a late one; each completes in its turn. */
void mx_overtake(struct mx_qp *q, int i)
{
	static struct mx_wqe w;

	mx_load(q, q->pending[i].at, &w);
	if (w.opcode != MLX5_OPCODE_RDMA_READ)
		return;
	if (!q->pending[i].late)
		q->pending[i].late = dice() % 4 ? MX_LATE : MX_ON_TIME;
	if (q->pending[i].late == MX_ON_TIME || sim_fault_ahead(&q->o, q->qpn))
		return;
	for (int k = i + 1; k < q->npending; k++) {
		struct mx_pending *p = &q->pending[k];

		if (p->stream != q->pending[i].stream || p->early)
			continue;
		mx_load(q, p->at, &w);
		mx_decode(q, &w);
		if (w.flaw || w.flags & 0xe0) /* fences */
			return;
		if (w.opcode == MLX5_OPCODE_RDMA_READ)
			continue;
		/* One that fails has to fail behind the READ. */
		if ((w.opcode != MLX5_OPCODE_RDMA_WRITE && !mx_is_atomic(w.opcode)) || !mx_would_work(q, &w))
			return;
		if (mx_pauses(q, &w, p))
			return;
		p->begun = true;
		if (mx_execute(q, &w, p) == MX_WAIT)
			return; /* the rest of it comes before what is behind it */
		p->early = true;
	}
}

/* Tells whether a request that is next does nothing yet. */
bool mx_pauses(struct mx_qp *q, const struct mx_wqe *w, struct mx_pending *p)
{
	uint32_t options = q->o.ctx->dev->options;

	if (p->early || p->message || !(options & (MX_LATE_READS | MX_TORN)))
		return false;
	if (!p->until)
		p->until = pause_from(sim_now(), w->opcode == MLX5_OPCODE_RDMA_READ && options & MX_LATE_READS ? 8 : 32);
	return p->until && sim_now() < p->until;
}

/* The part of a list that begins behind so many bytes. */
static int cut(const struct sim_piece *all, int n, uint64_t from, uint64_t len, struct sim_piece *out)
{
	int m = 0;

	for (int i = 0; i < n && len; i++) {
		uint64_t skip = from < all[i].len ? from : all[i].len, rest = all[i].len - skip;

		from -= skip;
		rest = rest < len ? rest : len;
		if (rest)
			out[m++] = (struct sim_piece){ all[i].at + skip, rest };
		len -= rest;
	}
	return m;
}

static int copy(struct sim_node *far, struct mx_wqe *w, uint8_t *at, uint64_t from, uint64_t len)
{
	struct sim_piece here[MX_MAX_ENTRY / MX_SEGMENT], there = { at + from, len };
	int n = cut(w->pieces, w->npieces, from, len, here);

	switch (sim_transfer(far, w->opcode != MLX5_OPCODE_RDMA_READ, here, n, &there, 1)) {
	case 0: return MX_DONE;
	case ESRCH: return MX_LOST;
	}
	return MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
}

/*
 * Moves the data of a READ or a WRITE, or one part of it, which are as the lines of the
 * responder's memory are; MX_WAIT: there is more. The parts go round from any of them, up
 * or down.
 */
int mx_move(struct mx_qp *q, struct mx_wqe *w, struct mx_pending *p, struct sim_node *far, uint8_t *at)
{
	uint64_t skew = w->raddr % LINE, lines = (skew + w->bytes + LINE - 1) / LINE, each, from, to;
	uint32_t steps, i;
	int status;

	if (!w->bytes)
		return MX_DONE;
	if (!(q->o.ctx->dev->options & MX_TORN))
		return copy(far, w, at, 0, w->bytes);
	each = (lines + MAX_STEPS - 1) / MAX_STEPS;
	steps = (lines + each - 1) / each;
	if (p->steps == steps)
		return MX_DONE; /* it waits for a receive */
	if (!p->steps)
		p->first = dice();
	i = (p->first >> 1) + (p->first & 1 ? p->steps : steps - p->steps);
	i = i % steps;
	from = i * each * LINE;
	from = from < skew ? 0 : from - skew;
	to = (i + 1) * each * LINE - skew;
	status = copy(far, w, at, from, (to < w->bytes ? to : w->bytes) - from);
	if (status || ++p->steps == steps)
		return status;
	p->until = pause_from(sim_now(), 32);
	return MX_WAIT;
}
