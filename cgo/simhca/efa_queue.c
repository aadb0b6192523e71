//go:build simhca && linux && cgo

/* Which of the requests under way is next: EFA delivers in no order. */
#include "efa.h"
#include <stdlib.h>

static uint64_t dice(void)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return state >> 33;
}

/* Puts what was posted among the requests under way, where it will be executed. */
static bool fetch(struct ef_qp *q)
{
	uint32_t options = q->o.ctx->dev->options;
	uint16_t posted = __atomic_load_n(q->sq_db, __ATOMIC_ACQUIRE);
	struct ef_request **end = &q->requests;

	if (!q->sq_count || posted == q->sq_next)
		return false;
	sim_fetched = true;
	if ((uint16_t)(posted - q->sq_next) > q->sq_count)
		sim_trace(1, "queue pair %#x: more requests than its queue holds", q->qpn);
	while (*end)
		end = &(*end)->next;
	while (q->sq_next != posted) {
		struct ef_request *r = calloc(1, sizeof(*r)), **p = end;

		r->e = q->sq[q->sq_next++ & (q->sq_count - 1)];
		r->due = options & EF_RANDOM ? sim_now() + dice() % 30000 : 0;
		if (!(options & EF_REVERSE))
			while (*p && (*p)->due <= r->due)
				p = &(*p)->next;
		r->next = *p;
		*p = r;
	}
	return true;
}

static void finish(struct ef_qp *q, struct ef_request **p, int status)
{
	struct ef_request *r = *p;
	struct ef_completion e = { .id = r->e.id, .status = status, .qpn = q->qpn };

	sim_trace(2, "queue pair %#x: request %u, operation %u, to %#x: %d", q->qpn, r->e.id, r->e.ctrl1 & EF_CTRL_OP, r->e.qpn, status);
	ef_complete(q->scq, EF_SENDS, &e, r->e.ctrl1 & EF_CTRL_OP, false);
	*p = r->next;
	free(r);
}

static void flush(struct ef_qp *q)
{
	struct sim_piece pieces[16];
	uint64_t room;
	uint16_t id;
	bool bad;
	int n;

	while (q->requests)
		finish(q, &q->requests, EF_FLUSHED);
	while (ef_take(q, pieces, &n, &room, &id, &bad))
		ef_receive_done(q, id, EF_FLUSHED, 0, NULL, NULL);
}

/* enum ibv_wc_status as EFA says it. */
static int fault_status(int status)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR: return EF_FLUSHED;
	case IBV_WC_LOC_LEN_ERR: return EF_BAD_LENGTH;
	case IBV_WC_LOC_PROT_ERR: return EF_BAD_LKEY;
	case IBV_WC_REM_ACCESS_ERR: return EF_FAR_ADDRESS;
	case IBV_WC_REM_ABORT_ERR: return EF_FAR_ABORT;
	case IBV_WC_RNR_RETRY_EXC_ERR: return EF_FAR_RNR;
	case IBV_WC_RETRY_EXC_ERR: case IBV_WC_RESP_TIMEOUT_ERR: return EF_UNRESPONSIVE;
	}
	return EF_INTERNAL;
}

bool ef_qp_work(struct ef_qp *q)
{
	bool busy;

	if (q->state < IBV_QPS_RTS || q->state == IBV_QPS_SQD)
		return false;
	if (sim_fault_late(&q->o, q->qpn)) {
		sim_waiting = true;
		return false;
	}
	busy = fetch(q);
	if (q->state == IBV_QPS_ERR) {
		flush(q);
		return busy;
	}
	for (struct ef_request **p = &q->requests; *p;) {
		int status;

		if ((*p)->due > sim_now()) {
			busy = true;
			p = &(*p)->next;
			continue;
		}
		status = (*p)->since ? 0 : sim_fault_request(&q->o, q->qpn);
		status = status ? fault_status(status) : ef_run(q, *p);
		if (status == EF_WAIT) {
			p = &(*p)->next;
			continue;
		}
		finish(q, p, status);
		busy = true;
	}
	sim_waiting |= q->requests != NULL;
	return busy;
}
