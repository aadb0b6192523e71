//go:build simhca && linux && cgo

/*
 * A program that polls an empty completion queue lends the devices its thread: while programs
 * spin, and CPUs are few, the thread of the devices may get none for milliseconds. One that
 * posts, or asks for an event, may wait for it: the devices rest no longer.
 * So these calls are watched, where the library has its pointers to them. In a program that
 * has requests executed and calls none of them the devices do not rest.
 */
#include "sim.h"

typedef int poll_fn(struct ibv_cq *, int, struct ibv_wc *);
typedef int notify_fn(struct ibv_cq *, int);
typedef int send_fn(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
typedef int receive_fn(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
typedef int bind_fn(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
typedef void begin_fn(struct ibv_qp_ex *);
typedef int complete_fn(struct ibv_qp_ex *);
typedef int start_fn(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);

enum { PLACES = 1 << 13, TRIES = 8 };

/* The call of an extended queue that begins a poll, which queues have differently. */
static struct { struct ibv_cq_ex *cq; start_fn *real; } starts[PLACES];

/* Those of mlx5, and of EFA. */
static poll_fn *real_polls[2];
static send_fn *real_sends[2];
static receive_fn *real_receives[2];
static begin_fn *real_begins[2];
static complete_fn *real_completes[2];
static notify_fn *real_notify; /* EFA's is in efa_cq.c */
static bind_fn *real_bind;     /* of mlx5 alone */

static bool posted;

bool sim_posted(void) { return __atomic_load_n(&posted, __ATOMIC_RELAXED); }

static int poll(poll_fn *real, struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = real(cq, n, wc);

	return got || !n || !sim_lend() ? got : real(cq, n, wc);
}

static int poll_mlx5(struct ibv_cq *cq, int n, struct ibv_wc *wc) { return poll(real_polls[0], cq, n, wc); }
static int poll_efa(struct ibv_cq *cq, int n, struct ibv_wc *wc) { return poll(real_polls[1], cq, n, wc); }

static int notify(struct ibv_cq *cq, int solicited)
{
	int err = real_notify(cq, solicited);

	sim_asked();
	return err;
}

static int received(int err)
{
	sim_rouse();
	return err;
}

static int sent(int err)
{
	__atomic_store_n(&posted, true, __ATOMIC_RELAXED);
	sim_rouse();
	return err;
}

static int send_mlx5(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) { return sent(real_sends[0](qp, wr, bad)); }
static int send_efa(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) { return sent(real_sends[1](qp, wr, bad)); }
static int receive_mlx5(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) { return received(real_receives[0](qp, wr, bad)); }
static int receive_efa(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) { return received(real_receives[1](qp, wr, bad)); }
static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) { return sent(real_bind(qp, mw, bind)); }
static int complete_mlx5(struct ibv_qp_ex *qp) { return sent(real_completes[0](qp)); }
static int complete_efa(struct ibv_qp_ex *qp) { return sent(real_completes[1](qp)); }

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
	struct ibv_context_ops *ops = &c->context->ops;
	bool mlx5 = cq->ctx->dev->model == &sim_mlx5;

	if (ops->poll_cq != poll_mlx5 && ops->poll_cq != poll_efa) {
		real_polls[!mlx5] = ops->poll_cq;
		real_sends[!mlx5] = ops->post_send;
		real_receives[!mlx5] = ops->post_recv;
		__atomic_store_n(&ops->poll_cq, mlx5 ? poll_mlx5 : poll_efa, __ATOMIC_RELEASE);
		__atomic_store_n(&ops->post_send, mlx5 ? send_mlx5 : send_efa, __ATOMIC_RELEASE);
		__atomic_store_n(&ops->post_recv, mlx5 ? receive_mlx5 : receive_efa, __ATOMIC_RELEASE);
	}
	if (mlx5 && ops->req_notify_cq != notify) {
		real_notify = ops->req_notify_cq;
		real_bind = ops->bind_mw;
		__atomic_store_n(&ops->bind_mw, bind_mw, __ATOMIC_RELEASE);
		__atomic_store_n(&ops->req_notify_cq, notify, __ATOMIC_RELEASE);
	}
	watch_start((struct ibv_cq_ex *)c);
}

/*
 * The first posts of a queue pair: by then the library has set the call that ends a post, behind the change to RTS. In other
 * states it may be one that refuses all.
 */
static void begin(struct ibv_qp_ex *q, int model)
{
	complete_fn *watched = model ? complete_efa : complete_mlx5, *real = __atomic_load_n(&q->wr_complete, __ATOMIC_RELAXED);

	if (q->qp_base.state == IBV_QPS_RTS) {
		if (real != watched) {
			__atomic_store_n(&real_completes[model], real, __ATOMIC_RELEASE); /* the library has one for all */
			__atomic_store_n(&q->wr_complete, watched, __ATOMIC_RELEASE);
		}
		__atomic_store_n(&q->wr_start, real_begins[model], __ATOMIC_RELEASE);
	}
	real_begins[model](q);
}

static void begin_mlx5(struct ibv_qp_ex *q) { begin(q, 0); }
static void begin_efa(struct ibv_qp_ex *q) { begin(q, 1); }

/* A queue pair changes to RTS. Its user handle is its struct ibv_qp, and both libraries have room for an extended one in each. */
void sim_watch_posts(struct sim_obj *qp)
{
	struct ibv_qp_ex *q = (struct ibv_qp_ex *)(uintptr_t)qp->user;
	bool mlx5 = qp->ctx->dev->model == &sim_mlx5;
	begin_fn *watched = mlx5 ? begin_mlx5 : begin_efa;

	if (!q->wr_start || q->wr_start == watched)
		return;
	real_begins[!mlx5] = q->wr_start;
	q->wr_start = watched;
}

void sim_unwatch_polls(struct sim_obj *cq)
{
	struct ibv_cq_ex *c = (struct ibv_cq_ex *)(uintptr_t)cq->user;

	for (size_t i = 0; i < TRIES; i++)
		if (starts[place(c, i)].cq == c)
			__atomic_store_n(&starts[place(c, i)].cq, NULL, __ATOMIC_RELEASE);
}
