//go:build simhca && linux && cgo

/*
 * The thread that is the devices: it looks at the queues of all objects in turn.
 * When there was nothing to do for a while it sleeps longer and longer, up to
 * half a millisecond.
 */
#include "sim.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static bool running;

static bool turn(void)
{
	bool busy = false;

	sim_lock();
	for (struct sim_obj *o = sim_working, *next; o; o = next) {
		next = o->next;
		busy |= o->ctx->dev->model->work(o);
	}
	sim_unlock();
	return busy;
}

static void *engine(void *unused)
{
	uint64_t idle = sim_now();

	(void)unused;
	prctl(PR_SET_NAME, "simhca");
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		uint64_t now, nap;

		if (turn())
			idle = sim_now();
		now = sim_now();
		if (now - idle < 50000) {
			sched_yield();
			continue;
		}
		nap = (now - idle) / 16;
		nap = nap < 10000 ? 10000 : nap > 500000 ? 500000 : nap;
		nanosleep(&(struct timespec){ .tv_nsec = nap }, NULL);
	}
	return NULL;
}

/* Signals are the program's. */
void sim_engine_start(void)
{
	sigset_t all, old;
	pthread_t t;

	if (running)
		return;
	running = true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&t, NULL, engine, NULL))
		abort();
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_detach(t);
}

/* In the child of a fork there is no thread. */
void sim_engine_forget(void) { running = false; }
