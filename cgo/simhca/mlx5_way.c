//go:build simhca && linux && cgo

/*
 * Requests between devices whose ways are impaired. A request is sent, arrives, is executed in its
 * turn, and its response comes back; requests behind it are sent meanwhile. A packet that is lost
 * is sent again: after a round trip, if others behind it show the gap, else after the timeout. A
 * response that is lost is asked for again, and the request is not executed twice (section 9.4.5).
 */
#include "mlx5.h"

enum { HEADERS = 58, GAP = 10000 /* ns */ };

enum { UNSENT, SENT, ARRIVED, RETURNING, OVER };

struct way { const struct sim_rule *there, *back; };

static struct way way_of(struct mx_qp *q, const struct mx_wqe *w)
{
	struct sim_device *d = q->o.ctx->dev;
	const struct ib_uverbs_qp_dest *dest = &q->attr.dest;
	uint32_t to = q->dci || q->type == IBV_QPT_UD ? mx_address_at(d, w->av.rgid, be16toh(w->av.rlid), mx_av_qpn(&w->av)) :
		mx_address_at(d, dest->dgid, dest->dlid, q->attr.dest_qp_num);

	return (struct way){ sim_rule_of(d->address, to), sim_rule_of(to, d->address) };
}

static uint32_t packets(const struct mx_qp *q, uint64_t bytes)
{
	uint64_t mtu = q->type == IBV_QPT_UD ? 4096 : 128u << q->attr.path_mtu;

	return bytes ? (bytes + mtu - 1) / mtu : 1;
}

static bool reads(const struct mx_wqe *w) { return w->opcode == MLX5_OPCODE_RDMA_READ; }

static uint64_t arrival(const struct mx_qp *q, const struct sim_rule *r, uint64_t bytes)
{
	return sim_arrival(r, sim_now(), bytes + HEADERS * packets(q, bytes));
}

/* Has the packets that are left arrive; false: one of them is lost, and p says when it is sent again. */
static bool arrive(struct mx_qp *q, struct mx_pending *p, struct way way, const struct sim_rule *r, uint64_t bytes, bool followed)
{
	uint32_t n = packets(q, bytes);
	uint64_t now = sim_now();

	for (; p->packet < n; p->packet++, p->tries = 0) {
		if (!sim_lost(r))
			continue;
		p->tries++;
		if (r->loss < 1 && (followed || p->packet + 1 < n))
			p->due = sim_arrival(way.back, sim_arrival(way.there, now, 0), 0) + GAP;
		else
			p->due = q->attr.timeout ? now + (4096ull << q->attr.timeout) : ~0ull;
		return false;
	}
	p->packet = p->tries = 0;
	return true;
}

static uint64_t request_bytes(const struct mx_wqe *w) { return reads(w) ? 0 : w->bytes; }

/* Sends a request, unless it arrived before there was a rule for its way. */
static void leave(struct mx_qp *q, const struct mx_wqe *w, struct mx_pending *p, struct way way)
{
	if (p->message || p->steps) {
		p->leg = ARRIVED;
		return;
	}
	p->leg = SENT;
	p->due = arrival(q, way.there, request_bytes(w));
}

/* The end of a request. */
static int over(struct mx_pending *p, int status)
{
	p->leg = OVER;
	return p->status = status;
}

static int execute(struct mx_qp *q, struct mx_wqe *w, struct mx_pending *p, struct way way)
{
	int status = mx_execute(q, w, p);

	if (status == MX_WAIT)
		return MX_WAIT;
	/* What the requester finds itself, and what has no response. */
	if (q->type == IBV_QPT_UD || q->type == IBV_QPT_UC || (status && !(status & MX_REMOTE)))
		return over(p, status);
	p->status = status;
	p->leg = RETURNING;
	p->due = arrival(q, way.back, reads(w) && !status ? w->bytes : 0);
	return MX_WAIT;
}

/* Goes on with a request; followed: there are others behind it. Its status, MX_WAIT if it is not over. */
static int carry(struct mx_qp *q, struct mx_wqe *w, struct mx_pending *p, bool followed)
{
	struct way way = way_of(q, w);

	if (p->leg == OVER)
		return p->status;
	if (p->leg == UNSENT && !way.there && !way.back)
		return mx_execute(q, w, p);
	if (p->leg == UNSENT)
		leave(q, w, p, way);
	if (p->leg != ARRIVED && sim_now() < p->due)
		return MX_WAIT;
	if (p->tries > q->attr.retry_cnt)
		return over(p, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
	switch (p->leg) {
	case SENT:
		if (!arrive(q, p, way, way.there, request_bytes(w), followed))
			return q->type == IBV_QPT_UD || q->type == IBV_QPT_UC ? over(p, MX_DONE) : MX_WAIT;
		p->leg = ARRIVED;
		/* fall through */
	case ARRIVED:
		return execute(q, w, p, way);
	case RETURNING:
		if (p->tries && sim_lost(way.there)) { /* the request that asks again */
			p->tries++;
			p->due = q->attr.timeout ? sim_now() + (4096ull << q->attr.timeout) : ~0ull;
			return MX_WAIT;
		}
		return arrive(q, p, way, way.back, reads(w) && !p->status ? w->bytes : 0, followed) ? over(p, p->status) : MX_WAIT;
	}
	return p->status;
}

int mx_carry(struct mx_qp *q, struct mx_wqe *w, struct mx_pending *p) { return carry(q, w, p, p + 1 < q->pending + q->npending); }

/* Tells whether a request behind others of its stream may be executed before they are over: they have been. */
static bool next_there(const struct mx_qp *q, int i)
{
	for (int k = 0; k < i; k++)
		if (q->pending[k].stream == q->pending[i].stream && (q->pending[k].leg < RETURNING || q->pending[k].status))
			return false;
	return true;
}

/* Sends requests that are behind others, and has them executed in their turn. */
void mx_send_behind(struct mx_qp *q)
{
	static struct mx_wqe w;

	if (sim_fault_ahead(&q->o, q->qpn))
		return;
	for (int i = 1; i < q->npending; i++) {
		struct mx_pending *p = &q->pending[i];
		struct way way;

		if (p->leg >= RETURNING || p->early)
			continue;
		mx_load(q, p->at, &w);
		mx_decode(q, &w);
		if (w.flags & 0xe0) /* fences */
			return;
		way = way_of(q, &w);
		if (p->leg == UNSENT && (way.there || way.back))
			leave(q, &w, p, way);
		if (p->leg != UNSENT && next_there(q, i))
			carry(q, &w, p, i + 1 < q->npending);
	}
}
