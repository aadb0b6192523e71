//go:build simhca && linux && cgo

/* A request of EFA: its own flaws, then what the other side says. */
#include "efa.h"

enum { GRH = 40, KEY = 0xffffff, RNR_TRY_NS = 100000 /* a guess */ };

/* Takes the next receive; false: there is none. */
bool ef_take(struct ef_qp *q, struct sim_piece *pieces, int *n, uint64_t *room, uint16_t *id, bool *bad)
{
	uint16_t posted;
	bool first = true, last = false;

	*n = *room = 0;
	*bad = false;
	if (!q->rq_count)
		return false;
	posted = __atomic_load_n(q->rq_db, __ATOMIC_ACQUIRE);
	if (posted == q->rq_next)
		return false;
	while (!last && q->rq_next != posted) {
		const struct ef_receive *d = &q->rq[q->rq_next++ & (q->rq_count - 1)];
		uint8_t *p;

		if (first)
			*id = d->id;
		if (first != (d->ctrl >> 30 & 1)) {
			sim_trace(1, "queue pair %#x: a receive that does not begin where it should", q->qpn);
			*bad = true;
		}
		last = d->ctrl >> 31;
		first = false;
		if (!d->length)
			continue;
		p = sim_memory(q->o.pd, d->ctrl & KEY, false, d->addr, d->length, IBV_ACCESS_LOCAL_WRITE);
		if (!p || *n == 16) {
			*bad = true;
			continue;
		}
		pieces[(*n)++] = (struct sim_piece){ p, d->length };
		*room += d->length;
	}
	return true;
}

void ef_receive_done(struct ef_qp *q, uint16_t id, int status, uint64_t bytes, struct ef_qp *from, const struct ef_entry *e)
{
	struct ef_completion c = { .id = id, .status = status, .qpn = q->qpn, .length = bytes, .ah = 0xffff };
	int op = e ? e->ctrl1 & EF_CTRL_OP : EF_SEND;
	bool imm = e && e->ctrl1 & EF_CTRL_IMM;

	if (from) {
		const uint8_t *gid = from->o.ctx->dev->gids[0].raw;
		struct ef_ah *a = ef_ah_to(q->o.pd, gid);

		c.src = from->qpn;
		if (a)
			c.ah = a->number;
		if (op == EF_WRITE) { /* the rest of the length */
			c.more[0] = bytes >> 16;
			c.more[1] = bytes >> 24;
		} else if (!a) {
			memcpy(c.more, gid, 16);
		}
	}
	if (imm)
		c.imm = e->imm;
	ef_complete(q->rcq, EF_RECEIVES, &c, op, imm);
}

static int not_ready(struct ef_qp *q, struct ef_request *r)
{
	if (!r->since)
		r->since = sim_now();
	if (q->rnr == 7 || sim_now() - r->since < (q->rnr + 1) * (uint64_t)RNR_TRY_NS)
		return EF_WAIT;
	return EF_FAR_RNR;
}

struct message { struct sim_piece here[EF_SGE]; int n; uint64_t bytes; };

static int add(struct ef_qp *q, struct message *m, const struct ef_buffer *b, uint32_t access)
{
	uint8_t *p = NULL;

	if (b->key & ~KEY)
		return EF_INTERNAL;
	if (b->length) {
		p = sim_memory(q->o.pd, b->key, false, b->addr, b->length, access);
		if (!p)
			return EF_BAD_LKEY;
	}
	m->here[m->n++] = (struct sim_piece){ p, b->length };
	m->bytes += b->length;
	return EF_OK;
}

/* The memory of this side. */
static int gather(struct ef_qp *q, struct ef_entry *e, struct message *m)
{
	int op = e->ctrl1 & EF_CTRL_OP, err;

	if (op != EF_SEND) {
		if (e->length > 1 || e->ctrl1 & EF_CTRL_INLINE)
			return EF_BAD_OP;
		if (e->length && (err = add(q, m, &e->list[1], op == EF_READ ? IBV_ACCESS_LOCAL_WRITE : 0)))
			return err;
		return m->bytes > EF_MAX_RDMA || m->bytes != e->list[0].length ? EF_BAD_LENGTH : EF_OK;
	}
	if (e->ctrl1 & EF_CTRL_INLINE) {
		if (e->length > EF_INLINE)
			return EF_BAD_LENGTH;
		m->here[m->n++] = (struct sim_piece){ e->data, m->bytes = e->length };
		return EF_OK;
	}
	if (e->length > EF_SGE)
		return EF_BAD_LENGTH;
	for (int i = 0; i < e->length; i++)
		if ((err = add(q, m, &e->list[i], 0)))
			return err;
	return m->bytes > EF_MTU ? EF_BAD_LENGTH : EF_OK;
}

static const char *flaw(const struct ef_entry *e)
{
	if (!(e->ctrl1 & EF_CTRL_META) || e->ctrl1 & EF_CTRL_EXTENSION)
		return "the wrong kind of descriptor";
	if ((e->ctrl2 & (EF_CTRL_FIRST | EF_CTRL_LAST)) != (EF_CTRL_FIRST | EF_CTRL_LAST))
		return "not first and last of its kind";
	if (!(e->ctrl2 & EF_CTRL_COMPLETION))
		return "no completion wanted";
	if (e->ctrl2 & 0xe2)
		return "reserved flags";
	return NULL;
}

static int copy_message(struct ef_qp *q, struct ef_qp *t, struct message *m, struct sim_piece *to, int nto)
{
	struct sim_piece from[EF_SGE + 1];
	uint8_t grh[GRH] = { 0x60 };

	if (!q->ud) {
		sim_copy(to, nto, m->here, m->n);
		return EF_OK;
	}
	memcpy(grh + 8, q->o.ctx->dev->gids[0].raw, 16);
	memcpy(grh + 24, t->o.ctx->dev->gids[0].raw, 16);
	from[0] = (struct sim_piece){ grh, GRH };
	memcpy(from + 1, m->here, m->n * sizeof(*from));
	sim_copy(to, nto, from, m->n + 1);
	return EF_OK;
}

/* The other side. What goes wrong there the sender of a datagram does not hear of. */
static int respond(struct ef_qp *q, struct ef_request *r, struct message *m, struct ef_qp *t)
{
	struct ef_entry *e = &r->e;
	int op = e->ctrl1 & EF_CTRL_OP, n;
	bool takes = op == EF_SEND || (op == EF_WRITE && e->ctrl1 & EF_CTRL_IMM), bad;
	struct sim_piece there = { NULL, m->bytes }, room[16];
	uint64_t space, need = m->bytes + (q->ud ? GRH : 0);
	uint16_t id;

	if (op != EF_SEND) {
		if (!ef_ah_to(t->o.pd, q->o.ctx->dev->gids[0].raw))
			return EF_UNKNOWN_PEER;
		if (m->bytes) {
			there.at = sim_memory(t->o.pd, e->list[0].key, true, e->list[0].addr, m->bytes,
					      op == EF_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
			if (!there.at)
				return EF_FAR_ADDRESS;
		}
	}
	if (takes && !ef_take(t, room, &n, &space, &id, &bad))
		return q->ud ? EF_OK : not_ready(q, r);
	if (op == EF_SEND && (bad || space < need)) {
		ef_receive_done(t, id, bad ? EF_BAD_LKEY : EF_BAD_LENGTH, 0, NULL, NULL);
		return q->ud ? EF_OK : bad ? EF_FAR_STATUS : EF_FAR_LENGTH;
	}
	if (op == EF_READ)
		sim_copy(m->here, m->n, &there, 1);
	else if (op == EF_WRITE)
		sim_copy(&there, 1, m->here, m->n);
	else
		copy_message(q, t, m, room, n);
	if (takes)
		ef_receive_done(t, id, EF_OK, need, q, e);
	return EF_OK;
}

int ef_run(struct ef_qp *q, struct ef_request *r)
{
	struct ef_entry *e = &r->e;
	struct message m = {};
	const char *why = flaw(e);
	int op = e->ctrl1 & EF_CTRL_OP, status;
	struct sim_device *d;
	struct ef_ah *a;
	struct ef_qp *t;

	if (why) {
		sim_trace(1, "refused: queue pair %#x, request %u: %s", q->qpn, e->id, why);
		return EF_INTERNAL;
	}
	if (op > EF_WRITE || (op == EF_WRITE && !(ef_caps(q->o.ctx->dev) & EF_CAP_WRITE)) || (op != EF_SEND && q->ud))
		return EF_BAD_OP;
	status = gather(q, e, &m);
	if (status)
		return status;
	a = ef_ah_of(q->o.pd, e->ah);
	if (!a)
		return EF_BAD_AH;
	d = ef_device_at(q->o.ctx->dev, a->gid);
	if (!d)
		return q->ud ? EF_OK : EF_UNRESPONSIVE;
	t = ef_qp_of(d, e->qpn);
	if (!t || t->ud != q->ud || t->state < IBV_QPS_RTR || t->state > IBV_QPS_SQE || (op == EF_SEND && t->qkey != e->qkey))
		return q->ud ? EF_OK : EF_FAR_QPN;
	return respond(q, r, &m, t);
}
