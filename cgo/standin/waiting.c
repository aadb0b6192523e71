//go:build linux && cgo

#include "waiting.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

void standin_waiting_others(struct standin_waiting *w, int come, int take)
{
	for (; come > 0; come--) {
		w->queued++;
		if (!w->asked)
			continue;
		w->asked = 0;
		w->raised++;
		if (++w->unread > w->most)
			w->most = w->unread;
	}
	w->queued -= take < w->queued ? take : w->queued;
}

void standin_waiting_next(struct standin_waiting *w)
{
	int i = w->calls++;

	if (i < WAITING_CALLS)
		standin_waiting_others(w, w->come[i], w->take[i]);
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
	struct standin_waiting *w = cq->cq_context;

	(void)wcs;
	standin_waiting_next(w);
	if (n > w->queued)
		n = w->queued;
	w->queued -= n;
	return n;
}

static int req_notify(struct ibv_cq *cq, int solicited)
{
	struct standin_waiting *w = cq->cq_context;

	(void)solicited;
	standin_waiting_next(w);
	w->asked = 1;
	return 0;
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	struct standin_waiting *w = (void *)((char *)channel - offsetof(struct standin_waiting, channel));

	standin_waiting_next(w);
	if (!w->unread) {
		errno = EAGAIN;
		return -1;
	}
	w->unread--;
	w->read++;
	*cq = &w->cq;
	*context = w;
	return 0;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned int n) { ((struct standin_waiting *)cq->cq_context)->acked += n; }

struct standin_waiting *standin_waiting_new(void)
{
	struct standin_waiting *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->ctx.cmd_fd = -1;
	w->ctx.ops.poll_cq = poll_cq;
	w->ctx.ops.req_notify_cq = req_notify;
	w->cq.context = &w->ctx;
	w->cq.cq_context = w;
	return w;
}

static struct gv_driver saved;

void standin_waiting_install(uintptr_t table)
{
	struct gv_driver *d = (struct gv_driver *)table;

	saved = *d;
	d->get_cq_event = get_cq_event;
	d->ack_cq_events = ack_cq_events;
}

void standin_waiting_remove(uintptr_t table) { *(struct gv_driver *)table = saved; }
