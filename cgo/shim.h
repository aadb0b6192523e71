/*
 * The calls that Go makes into libibverbs. Handles travel as integers: a cgo
 * argument of pointer type costs a run-time check at each call, and the data
 * path makes millions of them.
 */
#ifndef GOVERBS_SHIM_H
#define GOVERBS_SHIM_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "driver.h"
#include "extended.h"
#include "yield.h"

/*
 * Posts the first n work requests of a chain whose next pointers already link
 * it in order. Answers errno in the low 32 bits and the number accepted in the
 * high ones. How and path: see GV_POST_PLAIN and GV_POLL_PLAIN in extended.h.
 */
static inline uint64_t gv_post_send(uintptr_t qp, uintptr_t how, struct ibv_send_wr *wr, uint32_t n)
{
	struct ibv_send_wr *bad = NULL;
	struct ibv_send_wr *rest = wr[n - 1].next;
	int err;

	if (how != GV_POST_PLAIN)
		return gv_post_extended(qp, (struct gv_sq *)how, wr, n);
	wr[n - 1].next = NULL;
	err = ibv_post_send((struct ibv_qp *)qp, wr, &bad);
	wr[n - 1].next = rest;
	if (!err)
		return (uint64_t)n << 32;
	return (uint64_t)(bad ? bad - wr : 0) << 32 | (uint32_t)gv_errno(err);
}

static inline uint64_t gv_post_send_at(uintptr_t qp, uintptr_t how, uintptr_t wr, uint32_t n)
{
	return gv_post_send(qp, how, (struct ibv_send_wr *)wr, n);
}

/* Posts receives to a queue pair, or to a shared receive queue. */
static inline uint64_t gv_post_recv_at(uintptr_t queue, int shared, uintptr_t at, uint32_t n)
{
	struct ibv_recv_wr *wr = (struct ibv_recv_wr *)at;
	struct ibv_recv_wr *bad = NULL;
	struct ibv_recv_wr *rest = wr[n - 1].next;
	int err;

	wr[n - 1].next = NULL;
	if (shared)
		err = ibv_post_srq_recv((struct ibv_srq *)queue, wr, &bad);
	else
		err = ibv_post_recv((struct ibv_qp *)queue, wr, &bad);
	wr[n - 1].next = rest;
	if (!err)
		return (uint64_t)n << 32;
	return (uint64_t)(bad ? bad - wr : 0) << 32 | (uint32_t)gv_errno(err);
}

/*
 * One chain of those that gv_post_all posts. Its results are as gv_post_send has them.
 */
enum { GV_SENDS, GV_RECVS, GV_SHARED_RECVS };

struct gv_posting {
	uint64_t queue, how, wr;
	uint32_t n, kind;
	uint32_t err, accepted;
};

/* Posts chains to several queues in one crossing. One that fails does not hold up others. */
static inline void gv_post_all(struct gv_posting *p, int n)
{
	for (struct gv_posting *end = p + n; p < end; p++) {
		uint64_t r = p->kind == GV_SENDS ? gv_post_send_at(p->queue, p->how, p->wr, p->n) :
						   gv_post_recv_at(p->queue, p->kind == GV_SHARED_RECVS, p->wr, p->n);

		p->err = (uint32_t)r;
		p->accepted = r >> 32;
	}
}

static inline int gv_poll_once(uintptr_t cq, uintptr_t path, struct ibv_wc *wc, int n)
{
	int got;

	if (path != GV_POLL_PLAIN)
		return gv_take_completions(cq, path, 0, 0, wc, sizeof(*wc), n);
	got = ibv_poll_cq((struct ibv_cq *)cq, n, wc);
	return got < 0 ? gv_poll_error(got) : got;
}

/* A number of spins with this bit has the CPU given up before each. */
#define GV_YIELD 0x80000000u

/* Polls up to spins + 1 times, until something is there. */
static inline int gv_poll(uintptr_t cq, uintptr_t path, struct ibv_wc *wc, int n, uint32_t spins)
{
	int yield = (spins & GV_YIELD) != 0;

	for (spins &= ~GV_YIELD;;) {
		int got = gv_poll_once(cq, path, wc, n);

		if (got != 0 || spins == 0)
			return got;
		spins = yield && !gv_yield() ? 0 : spins - 1;
	}
}

/* For which completions an event is requested, and how: Notify in types.go. */
#define GV_NOTIFY_SOLICITED 1u
#define GV_NOTIFY_RXE       2u

/*
 * Requests an event. The kernel has two ways to ask it of rxe. Its provider posts by
 * the one, a write, and requests events by the other, an ioctl, which takes almost twice
 * as long. Where the write is refused, as after a change of credentials, there is that.
 */
static inline int gv_request_event(struct ibv_cq *cq, uint32_t notify)
{
	int solicited = (notify & GV_NOTIFY_SOLICITED) != 0;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_req_notify_cq req;
	} cmd = {
		{ .command = IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, .in_words = sizeof(cmd) / 4 },
		{ .cq_handle = cq->handle, .solicited_only = solicited },
	};

	if (notify & GV_NOTIFY_RXE && write(cq->context->cmd_fd, &cmd, sizeof(cmd)) == sizeof(cmd))
		return 0;
	return ibv_req_notify_cq(cq, solicited);
}

/*
 * One step of waiting for a queue whose channel is non-blocking; *armed tells
 * whether an event was requested and not yet taken. It answers completions, or
 * 0 when there is none and an event is on its way, or -errno.
 *
 * A caller that finds completions leaves the event that told of them for the next
 * step, which takes it, while the next requests are under way, before it requests
 * another: there is never more than one unread event in the channel. After
 * requesting one it polls again: a completion that came in between raised none.
 */
static inline int gv_wait_step(uintptr_t channel, uintptr_t cq, uintptr_t path, int *armed, uint32_t notify,
			       struct ibv_wc *wc, int n)
{
	int got = gv_poll_once(cq, path, wc, n);

	if (got)
		return got;
	if (*armed) {
		struct ibv_cq *which;
		void *context;

		if (gv_driver()->get_cq_event((struct ibv_comp_channel *)channel, &which, &context))
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
		gv_driver()->ack_cq_events(which, 1);
		*armed = 0;
	}
	got = gv_request_event((struct ibv_cq *)cq, notify);
	if (got)
		return -gv_errno(got);
	*armed = 1;
	return gv_poll_once(cq, path, wc, n);
}

static inline int64_t gv_clock(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts))
		return 0;
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The time of CLOCK_BOOTTIME, in ns, or 0. libc reads it in the vDSO, without a system call. */
static inline int64_t gv_boottime(void) { return gv_clock(CLOCK_BOOTTIME); }

/* Struct gv_times of Times in requests.go. */
struct gv_times {
	int64_t posted, over, until;
	uint8_t bound, ends;
};

/* A reading of CLOCK_BOOTTIME, and one of a coarse clock before it. */
static struct {
	int64_t time, coarse;
} gv_read;

/* How old a reading may be that bounds a time, in ns of a clock that stands still in suspension. */
#define GV_RECENT 4000000

/*
 * A time not after now. The coarse clock costs a fifth of the other and says whether there is a
 * recent reading. Whatever it says, the time is one that has been: if the host was suspended since,
 * or another thread is about to write the two, it is older than the coarse clock says.
 */
static inline int64_t gv_bound(int64_t coarse)
{
	int64_t age = coarse - __atomic_load_n(&gv_read.coarse, __ATOMIC_RELAXED);
	int64_t time = __atomic_load_n(&gv_read.time, __ATOMIC_RELAXED);

	return time && age >= 0 && age < GV_RECENT ? time : gv_boottime();
}

/*
 * Posts a chain and polls a queue, if all of the chain was accepted, in one crossing. It
 * answers errno of the post in the low 16 bits, what the poll answers in the next 16, and
 * the number accepted in the high 32: a pointer for one of them costs some nanoseconds.
 * times, unless it is NULL, gets the time before the post, which must be before until unless
 * that is 0, and, with ends, if there are completions, the time after the poll. With bound,
 * the first may be earlier.
 */
static inline uint64_t gv_post_poll(uintptr_t qp, uintptr_t how, uintptr_t wr, uint32_t n,
				    uintptr_t cq, uintptr_t path, struct ibv_wc *wc, int max,
				    uint32_t spins, struct gv_times *times)
{
	int64_t coarse = 0;
	uint64_t r;
	int got;

	if (times && times->bound && !times->until) {
		coarse = gv_clock(CLOCK_MONOTONIC_COARSE);
		times->posted = gv_bound(coarse);
	} else if (times) {
		times->posted = gv_boottime();
		if (times->until && times->posted >= times->until)
			return ETIME;
	}
	r = gv_post_send(qp, how, (struct ibv_send_wr *)wr, n);
	got = (uint32_t)r ? 0 : gv_poll(cq, path, wc, max, spins);
	if (times) {
		times->over = times->ends && got > 0 ? gv_boottime() : 0;
		if (coarse && times->over) {
			__atomic_store_n(&gv_read.time, times->over, __ATOMIC_RELAXED);
			__atomic_store_n(&gv_read.coarse, coarse, __ATOMIC_RELAXED);
		}
	}
	return r | (uint64_t)(uint16_t)got << 16;
}

/* Takes one asynchronous event; the object cannot go away until it is acked. */
static inline int gv_take_async_event(uintptr_t ctx, struct ibv_async_event *ev)
{
	if (ibv_get_async_event((struct ibv_context *)ctx, ev))
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
	return 1;
}

/* Chains live in C memory, zeroed and linked once. */
static inline struct ibv_send_wr *gv_alloc_send_wrs(size_t n)
{
	struct ibv_send_wr *wr = calloc(n, sizeof(*wr));

	for (size_t i = 0; wr && i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	return wr;
}

static inline struct ibv_recv_wr *gv_alloc_recv_wrs(size_t n)
{
	struct ibv_recv_wr *wr = calloc(n, sizeof(*wr));

	for (size_t i = 0; wr && i + 1 < n; i++)
		wr[i].next = &wr[i + 1];
	return wr;
}

#endif
