//go:build simhca && linux && cgo

/*
 * EFA's completion queues have a part for sends and one for receives, each with
 * a phase of its own, and one doorbell for both.
 */
#include "efa.h"

static void fire(struct ef_cq *q)
{
	q->armed = false;
	sim_completion_event(&q->o);
}

static uint16_t unread(const struct ef_cq *q) { return q->pi[0] + q->pi[1] - q->consumed; }

/* How many completions the program has taken, and whether it wants an event. Taking the word away makes two that say the same different. */
bool ef_cq_work(struct ef_cq *q)
{
	uint32_t word;

	if (!q->db)
		return false;
	word = __atomic_exchange_n(q->db, ~0u, __ATOMIC_ACQ_REL);
	if (word == ~0u)
		return false;
	q->consumed = word;
	if (word >> 31 && !q->hooked) {
		q->armed = true;
		if (unread(q))
			fire(q);
	}
	return true;
}

/*
 * A poll right behind an arming writes the same doorbell, without the arming, and
 * memory keeps only what was written last, as a device does not. So arming is
 * watched where the library is entered.
 */
static int (*real_notify)(struct ibv_cq *, int);

static int notify(struct ibv_cq *cq, int solicited)
{
	int err = real_notify(cq, solicited);

	if (err)
		return err;
	sim_lock();
	for (struct sim_obj *o = sim_working; o; o = o->next) {
		struct ef_cq *q = (struct ef_cq *)o;

		if (o->kind != SIM_CQ || o->user != (uintptr_t)cq || o->ctx->dev->model != &sim_efa)
			continue;
		ef_cq_work(q);
		q->armed = true;
		if (unread(q))
			fire(q);
	}
	sim_unlock();
	sim_asked();
	return 0;
}

/* A completion queue's user handle is its struct ibv_cq, which is complete when a queue pair uses it. */
void ef_cq_hook(struct ef_cq *q)
{
	struct ibv_context *c = ((struct ibv_cq *)(uintptr_t)q->o.user)->context;

	if (!q->db || q->hooked)
		return;
	ef_cq_work(q);
	q->hooked = true;
	if (c->ops.req_notify_cq == notify)
		return;
	real_notify = c->ops.req_notify_cq;
	c->ops.req_notify_cq = notify;
}

void ef_complete(struct ef_cq *q, int which, struct ef_completion *e, int op, bool imm)
{
	uint32_t pi = q->pi[which]++;
	uint8_t *at = q->mem->at + ((size_t)which * q->count + (pi & (q->count - 1))) * q->size;
	int phase = !(pi & q->count); /* 1 in the first round */

	ef_cq_work(q);
	if (q->db && unread(q) > q->count * EF_SUB_CQS && !q->overrun) {
		q->overrun = true;
		sim_trace(1, "completion queue %u overruns", q->o.handle);
	}
	memcpy(at, e, 3);
	memcpy(at + 4, (uint8_t *)e + 4, q->size - 4);
	/* This byte makes it the program's. */
	__atomic_store_n(at + 3, (uint8_t)(phase | (which == EF_SENDS ? 1 : 2) << 1 | imm << 3 | op << 4), __ATOMIC_RELEASE);
	if (q->armed)
		fire(q);
}
