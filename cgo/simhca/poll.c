//go:build simhca && linux && cgo

/*
 * A program that polls an empty completion queue lends the devices its thread: while programs
 * spin, and CPUs are few, the thread of the devices may get none for milliseconds.
 * So the calls that poll are watched, where the library has its pointers to them.
 */
#include "sim.h"

typedef int poll_fn(struct ibv_cq *, int, struct ibv_wc *);
typedef int start_fn(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);

enum { PLACES = 1 << 13, TRIES = 8 };

/* The call of an extended queue that begins a poll, which queues have differently. */
static struct { struct ibv_cq_ex *cq; start_fn *real; } starts[PLACES];

static poll_fn *real_mlx5, *real_efa;

static int poll(poll_fn *real, struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = real(cq, n, wc);

	return got || !n || !sim_lend() ? got : real(cq, n, wc);
}

static int poll_mlx5(struct ibv_cq *cq, int n, struct ibv_wc *wc) { return poll(real_mlx5, cq, n, wc); }
static int poll_efa(struct ibv_cq *cq, int n, struct ibv_wc *wc) { return poll(real_efa, cq, n, wc); }

static size_t place(const struct ibv_cq_ex *cq, size_t try) { return (((uintptr_t)cq >> 4) * 0x9e3779b1u + try) % PLACES; }

static int start(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *a)
{
	start_fn *real = NULL;
	int err;

	for (size_t i = 0; i < TRIES && !real; i++)
		if (__atomic_load_n(&starts[place(cq, i)].cq, __ATOMIC_ACQUIRE) == cq)
			real = starts[place(cq, i)].real;
	err = real(cq, a);
	return err != ENOENT || !sim_lend() ? err : real(cq, a);
}

static void watch_start(struct ibv_cq_ex *cq)
{
	if (!cq->start_poll || cq->start_poll == start)
		return;
	for (size_t i = 0; i < TRIES; i++) {
		size_t at = place(cq, i);

		if (starts[at].cq)
			continue;
		starts[at].real = cq->start_poll;
		__atomic_store_n(&starts[at].cq, cq, __ATOMIC_RELEASE);
		__atomic_store_n(&cq->start_poll, start, __ATOMIC_RELEASE);
		return;
	}
}

/*
 * A completion queue's user handle is its struct ibv_cq, which is complete when a
 * queue pair uses it. Both libraries have room for an extended one in each.
 */
void sim_watch_polls(struct sim_obj *cq)
{
	struct ibv_cq *c = (struct ibv_cq *)(uintptr_t)cq->user;
	poll_fn **at = &c->context->ops.poll_cq;
	bool mlx5 = cq->ctx->dev->model == &sim_mlx5;

	if (*at != poll_mlx5 && *at != poll_efa) {
		*(mlx5 ? &real_mlx5 : &real_efa) = *at;
		__atomic_store_n(at, mlx5 ? poll_mlx5 : poll_efa, __ATOMIC_RELEASE);
	}
	watch_start((struct ibv_cq_ex *)c);
}

void sim_unwatch_polls(struct sim_obj *cq)
{
	struct ibv_cq_ex *c = (struct ibv_cq_ex *)(uintptr_t)cq->user;

	for (size_t i = 0; i < TRIES; i++)
		if (starts[place(c, i)].cq == c)
			__atomic_store_n(&starts[place(c, i)].cq, NULL, __ATOMIC_RELEASE);
}
