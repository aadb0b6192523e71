/*
 * How much room a send queue has, where requests are posted by ibv_wr_* calls.
 *
 * Those calls must never be made on a full queue. The one that starts a request
 * answers nothing, so a provider can only remember that the queue was full, and
 * some go on writing: libmlx5 leaves cur_ctrl at the newest request in flight
 * (_common_wqe_init_op in providers/mlx5/qp.c), and the setters that follow
 * write over it. So requests are counted here, by the rule of the providers
 * (mlx5_wq_overflow, efa_post_send_validate): a queue takes as many requests as
 * it was made for, each of any size that it was made for, and a completion gives
 * back its own place and those of all unsignaled requests before it.
 */
#ifndef GOVERBS_CREDITS_H
#define GOVERBS_CREDITS_H

#include <pthread.h>
#include <stdint.h>
#include <infiniband/mlx5dv.h>

/* In what order the requests of a send queue complete. */
enum gv_order {
	GV_IN_ORDER,  /* as they were posted */
	GV_BY_STREAM, /* those of one stream of a DCI as they were posted */
	GV_ANY_ORDER, /* SRD, where each request has its own completion */
};

/* A request that was posted and has not completed, as far as is known. */
struct gv_slot {
	uint64_t id;
	uint32_t group;
	uint8_t signaled;
	uint8_t busy;
};

/*
 * A send queue that is posted to by ibv_wr_* calls. head and tail count requests
 * and wrap. Posting changes head, under the lock that the provider holds from
 * ibv_wr_start on; completions change tail, under the lock of the completion
 * queue.
 */
struct gv_sq {
	struct mlx5dv_qp_ex *m; /* or NULL */
	uint64_t ops;           /* enum ibv_qp_create_send_ops_flags, GV_OP_RAW: those that can be called */
	int rxe;                /* rxe, whose mistakes are kept from harm */
	int sig_all;
	enum gv_order order;
	uint32_t qpn;
	uint32_t size; /* requests; 0: not counted */
	uint32_t mask; /* of slots */
	uint32_t head, tail;
	uint32_t next; /* GV_ANY_ORDER: where to look for a free slot */
	struct gv_slot *slots;
	struct gv_cq *cq;
	struct gv_sq *link; /* of the same bucket */
};

#define GV_BUCKETS 64

/* A completion queue: how it is polled, and the send queues to be credited. */
struct gv_cq {
	int how;     /* GV_POLL_PLAIN ... */
	int pending; /* error of a poll that had completions to answer first */
	uint32_t counted;
	pthread_mutex_t lock;
	struct gv_sq *sqs[GV_BUCKETS];
};

struct gv_cq *gv_cq_new(int how);
void gv_cq_free(struct gv_cq *c);

/*
 * Makes the counter of a new queue pair with room for size requests; c is where
 * its sends complete, or NULL if no completion queue reports them: then nothing is
 * counted. NULL if there is no memory.
 */
struct gv_sq *gv_sq_new(struct gv_cq *c, uint32_t qpn, uint32_t size, enum gv_order order);
void gv_sq_free(struct gv_sq *s);

/* The queue pair went through RESET: nothing is in it. */
void gv_sq_reset(struct gv_sq *s);

/* How many requests may still be under way. */
uint32_t gv_sq_outstanding(struct gv_sq *s);

/* The same of all queue pairs that are counted with a completion queue. */
uint32_t gv_cq_outstanding(struct gv_cq *c);

/* Credits n completions, each at the start of stride bytes. */
void gv_completed(struct gv_cq *c, const void *wcs, size_t stride, int n);

/* Requests of a driver's own, such as raw entries, have numbers above receives. */
static inline int gv_is_receive(const struct ibv_wc *wc) { return wc->opcode >= IBV_WC_RECV && wc->opcode < IBV_WC_DRIVER1; }

static inline uint32_t gv_load(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void gv_store(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

static inline int gv_room(struct gv_sq *s, uint32_t n)
{
	return !s->size || n <= s->size - (s->head - gv_load(&s->tail));
}

/*
 * Writes down request number at, which gv_room has room for. group is its
 * stream, or with GV_ANY_ORDER the head of its batch.
 */
static inline void gv_take(struct gv_sq *s, uint32_t at, uint64_t id, uint32_t group, int signaled)
{
	struct gv_slot *slot;

	if (!s->size)
		return;
	if (s->order == GV_ANY_ORDER) {
		while (__atomic_load_n(&s->slots[s->next & s->mask].busy, __ATOMIC_ACQUIRE))
			s->next++;
		at = s->next++;
	}
	slot = &s->slots[at & s->mask];
	slot->id = id;
	slot->group = group;
	slot->signaled = signaled || s->sig_all;
	__atomic_store_n(&slot->busy, 1, __ATOMIC_RELEASE);
}

/*
 * Takes back the requests of a batch that was not posted; head and next are as
 * they were before it.
 */
static inline void gv_untake(struct gv_sq *s, uint32_t head, uint32_t next)
{
	for (uint32_t at = next; s->size && at != s->next; at++) {
		struct gv_slot *slot = &s->slots[at & s->mask];

		if (slot->group == head) /* others were there before */
			__atomic_store_n(&slot->busy, 0, __ATOMIC_RELEASE);
	}
	s->next = next;
	gv_store(&s->head, head);
}

#endif
