//go:build linux && cgo

#include "credits.h"
#include <stdlib.h>

struct gv_cq *gv_cq_new(int how)
{
	struct gv_cq *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->how = how;
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

void gv_cq_free(struct gv_cq *c)
{
	if (!c)
		return;
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static struct gv_sq **bucket(struct gv_cq *c, uint32_t qpn) { return &c->sqs[(qpn ^ qpn >> 8) % GV_BUCKETS]; }

struct gv_sq *gv_sq_new(struct gv_cq *c, uint32_t qpn, uint32_t size, enum gv_order order)
{
	struct gv_sq *s = calloc(1, sizeof(*s));
	uint32_t slots = 1;

	if (!s)
		return NULL;
	s->order = order;
	s->qpn = qpn;
	s->cq = c;
	if (!c)
		return s;
	while (slots < size)
		slots *= 2;
	s->slots = calloc(slots, sizeof(*s->slots));
	if (!s->slots) {
		free(s);
		return NULL;
	}
	s->size = size;
	s->mask = slots - 1;
	pthread_mutex_lock(&c->lock);
	s->link = *bucket(c, qpn);
	*bucket(c, qpn) = s;
	__atomic_add_fetch(&c->counted, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&c->lock);
	return s;
}

void gv_sq_free(struct gv_sq *s)
{
	struct gv_cq *c;
	struct gv_sq **at;

	if (!s)
		return;
	c = s->cq;
	if (c) {
		pthread_mutex_lock(&c->lock);
		for (at = bucket(c, s->qpn); *at != s; at = &(*at)->link)
			;
		*at = s->link;
		__atomic_sub_fetch(&c->counted, 1, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&c->lock);
	}
	free(s->slots);
	free(s);
}

void gv_sq_reset(struct gv_sq *s)
{
	if (!s->cq)
		return;
	pthread_mutex_lock(&s->cq->lock);
	gv_store(&s->tail, gv_load(&s->head));
	for (uint32_t i = 0; i <= s->mask; i++)
		s->slots[i].busy = 0;
	pthread_mutex_unlock(&s->cq->lock);
}

uint32_t gv_sq_outstanding(struct gv_sq *s) { return gv_load(&s->head) - gv_load(&s->tail); }

uint32_t gv_cq_outstanding(struct gv_cq *c)
{
	uint32_t n = 0;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < GV_BUCKETS; i++)
		for (struct gv_sq *s = c->sqs[i]; s; s = s->link)
			n += gv_sq_outstanding(s);
	pthread_mutex_unlock(&c->lock);
	return n;
}

/* A request that fails completes, whether it is signaled or not. */
static int completes(const struct gv_slot *slot, uint64_t id, int failed)
{
	return slot->busy && slot->id == id && (slot->signaled || failed);
}

/*
 * The first of that number that can complete: all before it have. If programs
 * use a number for several requests, this is the cautious choice.
 */
static void in_order(struct gv_sq *s, uint64_t id, int failed)
{
	uint32_t head = gv_load(&s->head);

	for (uint32_t at = s->tail; at != head; at++)
		if (completes(&s->slots[at & s->mask], id, failed)) {
			gv_store(&s->tail, at + 1);
			return;
		}
}

/*
 * With streams a place is free once all before it have completed. Here the last
 * of several with one number is the cautious choice, and such a completion does
 * not speak for the unsignaled requests before it.
 */
static void by_stream(struct gv_sq *s, uint64_t id, int failed)
{
	uint32_t head = gv_load(&s->head), tail = s->tail, found = 0, matches = 0;
	struct gv_slot *done;

	for (uint32_t at = tail; at != head; at++)
		if (completes(&s->slots[at & s->mask], id, failed)) {
			found = at;
			matches++;
		}
	if (!matches)
		return;
	done = &s->slots[found & s->mask];
	done->busy = 0;
	for (uint32_t at = tail; matches == 1 && at != found; at++) {
		struct gv_slot *before = &s->slots[at & s->mask];

		if (before->group == done->group)
			before->busy = 0;
	}
	while (tail != head && !s->slots[tail & s->mask].busy)
		tail++;
	gv_store(&s->tail, tail);
}

static void any_order(struct gv_sq *s, uint64_t id, int failed)
{
	uint32_t from = s->next; /* the oldest lie behind the newest */

	for (uint32_t i = 0; i <= s->mask; i++) {
		struct gv_slot *slot = &s->slots[(from + i) & s->mask];

		if (__atomic_load_n(&slot->busy, __ATOMIC_ACQUIRE) && completes(slot, id, failed)) {
			__atomic_store_n(&slot->busy, 0, __ATOMIC_RELEASE);
			gv_store(&s->tail, s->tail + 1);
			return;
		}
	}
}

void gv_completed(struct gv_cq *c, const void *wcs, size_t stride, int n)
{
	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < n; i++) {
		const struct ibv_wc *wc = (const struct ibv_wc *)((const char *)wcs + i * stride);
		int failed = wc->status != IBV_WC_SUCCESS;
		struct gv_sq *s;

		/* One that failed does not tell its opcode. */
		if (!failed && gv_is_receive(wc))
			continue;
		for (s = *bucket(c, wc->qp_num); s && s->qpn != wc->qp_num; s = s->link)
			;
		if (!s)
			continue;
		switch (s->order) {
		case GV_IN_ORDER:
			in_order(s, wc->wr_id, failed);
			break;
		case GV_BY_STREAM:
			by_stream(s, wc->wr_id, failed);
			break;
		case GV_ANY_ORDER:
			any_order(s, wc->wr_id, failed);
			break;
		}
	}
	pthread_mutex_unlock(&c->lock);
}
