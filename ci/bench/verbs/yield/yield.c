/*
 * For two polling programs on one CPU, as the instruction clock has it: after
 * each poll of a completion queue the CPU goes to the other program. Without
 * that a ping-pong lasts as long as the scheduler's time slices (4 ms for half
 * a round trip) whatever the programs do. Preloaded into both sides of both
 * programs that are compared:
 *
 *	LD_PRELOAD=yield.so ib_send_lat ...
 *
 * Providers are called through a table in the device context, which is patched
 * when a device is opened.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <infiniband/verbs.h>

static int (*real_poll)(struct ibv_cq *, int, struct ibv_wc *);

static int poll_and_yield(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = real_poll(cq, n, wc);

	sched_yield();
	return got;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*open_device)(struct ibv_device *) = dlvsym(RTLD_NEXT, "ibv_open_device", "IBVERBS_1.1");
	struct ibv_context *ctx = open_device(device);

	if (ctx) {
		real_poll = ctx->ops.poll_cq;
		ctx->ops.poll_cq = poll_and_yield;
	}
	return ctx;
}
