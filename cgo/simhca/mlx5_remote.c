//go:build simhca && linux && cgo

/*
 * Messages to queue pairs of other processes: SENDs, the immediate data of WRITEs, and
 * datagrams. Receives and completions are the receiver's, which has to run for them. Short
 * messages travel in the ring; the bytes of long ones the receiver takes from where they are.
 */
#include "mlx5.h"

enum { PATIENCE = 1000000, AGAIN = 10000 /* ns */ };

struct body {
	uint32_t from, to; /* queue pairs */
	uint32_t device;   /* the sender's, in its process */
	uint32_t imm, qkey, undefined, npieces, rnr_timer;
	uint8_t opcode, flags;
	bool datagram, has_imm, here; /* the bytes are */
	int status;
	uint64_t bytes;
	struct mlx5_cqe64 e; /* a datagram's */
	union {
		struct sim_piece pieces[MX_MAX_ENTRY / MX_SEGMENT];
		uint8_t data[4096 + 40]; /* the largest datagram with its route header */
	};
};

_Static_assert(sizeof(struct body) <= sizeof(((struct sim_message *)0)->body), "room for a message");

static struct body *body_of(struct sim_message *m) { return (struct body *)m->body; }

static void fill(struct body *b, const struct sim_piece *pieces, int n, uint64_t bytes)
{
	struct sim_piece to = { b->data, sizeof(b->data) };

	b->bytes = bytes;
	b->here = bytes <= sizeof(b->data);
	b->npieces = b->here ? 1 : n;
	if (b->here)
		sim_copy(&to, 1, pieces, n);
	else
		memcpy(b->pieces, pieces, n * sizeof(*pieces));
}

/* Sends a message, whose answer comes later. */
int mx_send_message(struct mx_qp *q, struct mx_qp *t, struct mx_wqe *w, struct mx_pending *p)
{
	int slot = t->o.ctx->dev->node->slot;
	struct sim_message *m = sim_compose(slot);
	struct body *b;

	if (!m)
		return MX_WAIT;
	b = body_of(m);
	*b = (struct body){ .from = q->qpn, .to = t->qpn, .device = q->o.ctx->dev->number, .imm = w->imm, .opcode = w->opcode, .flags = w->flags };
	fill(b, w->pieces, mx_is_send(w->opcode) ? w->npieces : 0, w->bytes);
	m->device = t->o.ctx->dev->number;
	m->answered = true;
	p->message = m;
	p->receiver = slot;
	p->serial = sim_post(slot, m);
	p->until = sim_now() + PATIENCE;
	return MX_WAIT;
}

/* The answer to the message that was sent for a request; timer is what a receiver that is not ready asks for. */
int mx_answer(struct mx_pending *p, unsigned *timer)
{
	struct body *b = body_of(p->message);
	int status;

	switch (sim_state_of(p->message, p->serial)) {
	case SIM_ANSWERED:
		status = b->status;
		*timer = b->rnr_timer;
		sim_forget_message(p->message);
		p->message = NULL;
		p->until = status == MX_NOT_READY || status == MX_WAIT ? sim_now() + AGAIN : 0;
		return status;
	case SIM_SENT: case SIM_TAKEN:
		if (sim_now() < p->until)
			return MX_WAIT;
		p->until = sim_now() + PATIENCE;
		if (sim_alive(p->receiver))
			return MX_WAIT;
	}
	p->message = NULL;
	p->until = 0;
	return MX_LOST;
}

/* Takes back what was sent for a request; false: the receiver is at it. */
bool mx_recall(struct mx_pending *p)
{
	if (p->message && !sim_recall(p->message, p->serial) && sim_alive(p->receiver))
		return false;
	p->message = NULL;
	return true;
}

/* The same for all of a queue pair that is changed: no receiver is at any, since the change has waited for that. */
void mx_recall_all(struct mx_qp *q)
{
	for (int i = 0; i < q->npending; i++)
		if (q->pending[i].message)
			sim_recall(q->pending[i].message, q->pending[i].serial);
}

/* Sends a datagram. It waits for room as long as the receiver takes any, and for a millisecond. */
int mx_post_datagram(struct mx_qp *q, struct sim_device *to, const struct mx_datagram *d, struct mx_pending *p)
{
	struct sim_message *m = sim_compose(to->node->slot);
	struct body *b;

	if (!m) {
		if (!p->since)
			p->since = sim_now();
		if (sim_now() - p->since < PATIENCE)
			return MX_WAIT;
		sim_trace(1, "a datagram of queue pair %#x is dropped: no room", q->qpn);
		return MX_DONE;
	}
	b = body_of(m);
	*b = (struct body){ .from = q->qpn, .to = d->qpn, .qkey = d->qkey, .undefined = d->undefined, .datagram = true, .has_imm = d->imm, .e = d->e };
	fill(b, d->pieces, d->npieces, d->bytes);
	m->device = to->number;
	m->answered = false;
	sim_post(to->node->slot, m);
	return MX_DONE;
}

static void datagram(struct sim_device *d, struct body *b)
{
	struct mx_datagram m = { .e = b->e, .qpn = b->to, .qkey = b->qkey, .undefined = b->undefined, .npieces = 1, .bytes = b->bytes, .imm = b->has_imm };

	m.pieces[0] = (struct sim_piece){ b->data, b->bytes };
	mx_receive_datagram(d, &m);
}

/* The receiver's part in a request. */
static int receive(struct sim_node *from, struct sim_device *d, struct body *b)
{
	static struct mx_wqe w;
	struct mx_qp *s = b->device < (uint32_t)from->ndevices ? mx_qp_of(&from->devices[b->device], b->from) : NULL;
	struct mx_qp *t = mx_qp_of(d, b->to);
	int status;

	if (!s || !t || (t->dct ? t->state != IBV_QPS_RTR : s->attr.dest_qp_num != t->qpn || mx_connected(s) != t))
		return MX_LOST;
	memset(&w, 0, offsetof(struct mx_wqe, raw));
	w.opcode = b->opcode;
	w.flags = b->flags;
	w.imm = b->imm;
	w.bytes = b->bytes;
	w.npieces = b->npieces;
	if (b->here)
		w.pieces[0] = (struct sim_piece){ b->data, b->bytes };
	else
		memcpy(w.pieces, b->pieces, b->npieces * sizeof(*w.pieces));
	b->rnr_timer = t->attr.min_rnr_timer;
	status = mx_accept(b->here ? sim_self : from, s->qpn, s->o.ctx->dev->lid, t, &w);
	return mx_conclude(s, t, &w, status);
}

void mx_arrive(struct sim_node *from, struct sim_message *m)
{
	struct sim_device *d = &sim_self->devices[m->device];
	struct body *b = body_of(m);

	if (b->datagram)
		datagram(d, b);
	else
		b->status = receive(from, d, b);
}
