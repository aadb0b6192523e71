//go:build simhca && linux && cgo

/*
 * The thread that is the devices: it looks at the queues of all objects in turn.
 * When there was nothing to do for a while it sleeps longer and longer, up to half a
 * millisecond. Then, if no request waits either, it rests for some, in a fabric for the more
 * the more processes it has, until a call of the program wakes it that posts or waits for
 * something. Threads of the program do its work when they poll and find nothing; meanwhile it dozes,
 * and looks now and then whether they still do.
 */
#include "fault.h"
#include "sim.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { YIELD = 64, FEW = 16 /* turns */ };
enum { SPIN = 50000, SHORTEST_NAP = 10000, LONGEST_NAP = 500000, SHORTEST_DOZE = 50000, LONGEST_DOZE = 200000, LONG_IDLE = 50000000, REST = 10000000, REST_OF_EACH = 100000 }; /* ns */

bool sim_waiting, sim_fetched;

static bool running;
static bool rests; /* the thread, or it is about to */
static uint32_t lent; /* so often has a thread of the program done a turn */
static uint32_t asked; /* lent, when the program last asked for an event */
static bool timed;
static uint64_t spent; /* in such turns while they are timed, less what the clock takes */
static uint64_t clock_takes;

static bool turn(void)
{
	bool busy = sim_receive();

	sim_waiting = false;
	for (int i = 0; i < sim_self->ndevices; i++)
		if (sim_self->devices[i].model->tick)
			sim_self->devices[i].model->tick();
	for (struct sim_obj *o = sim_working, *next; o; o = next) {
		next = o->next;
		if (!o->ctx->dev->removed)
			busy |= o->ctx->dev->model->work(o);
	}
	return busy;
}

/* Does a turn in the calling thread, unless another thread is at it; true if there was something to do. */
bool sim_lend(void)
{
	static __thread uint32_t idle __attribute__((tls_model("initial-exec")));
	uint64_t start;
	bool busy, yields;

	if (!sim_trylock()) {
		if (++idle % YIELD == YIELD - 1) /* to the thread that holds it */
			sched_yield();
		return false;
	}
	if (rests) {
		sim_impair_look();
		sim_rouse();
	}
	start = timed ? sim_now() : 0;
	busy = turn();
	if (timed)
		spent += sim_now() - start - clock_takes;
	idle = busy ? 0 : idle + 1;
	yields = sim_in_fabric() && idle % YIELD == YIELD - 1;
	__atomic_add_fetch(&lent, 1, __ATOMIC_RELAXED);
	sim_unlock();
	if (yields) /* to the process that this one waits for, if CPUs are few */
		sched_yield();
	return busy;
}

/* The program asks for an event: it may poll no longer. */
void sim_asked(void)
{
	__atomic_store_n(&asked, __atomic_load_n(&lent, __ATOMIC_RELAXED), __ATOMIC_SEQ_CST);
	sim_rouse();
	sim_attend();
}

/* Tells whether the program has polled so often since it last asked for an event that it does not wait for one. */
static bool polls(void) { return __atomic_load_n(&lent, __ATOMIC_RELAXED) - __atomic_load_n(&asked, __ATOMIC_SEQ_CST) >= FEW; }

uint64_t simhca_time(int on)
{
	enum { CALLS = 1000 };
	uint64_t was, start = sim_now();

	for (int i = 0; i < CALLS; i++)
		sim_now();
	sim_lock();
	clock_takes = (sim_now() - start) / CALLS;
	was = spent;
	spent = 0;
	timed = on;
	sim_unlock();
	return was;
}

static void *engine(void *unused)
{
	uint64_t now = sim_now(), nap, doze = SHORTEST_DOZE, longest, idle = now, worked = now;
	uint32_t before = 0;
	bool busy;

	(void)unused;
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		uint32_t turns = __atomic_load_n(&lent, __ATOMIC_RELAXED);
		bool may = now - idle > LONG_IDLE;

		if (may)
			sim_listen(true);
		sim_lock();
		sim_impair_look();
		busy = turn();
		rests = may && !busy && turns == before && !sim_waiting && !sim_impaired && (!sim_fetched || sim_posted());
		longest = rests ? REST + sim_processes() * REST_OF_EACH : LONGEST_NAP;
		sim_unlock();
		if (may && !rests)
			sim_listen(false);
		now = sim_now();
		idle = busy || turns != before ? now : idle;
		worked = busy ? now : worked;
		nap = (now - idle) / 16;
		nap = nap < SHORTEST_NAP ? SHORTEST_NAP : nap > longest ? longest : nap;
		if (turns == before || !polls())
			doze = SHORTEST_DOZE;
		if (turns != before)
			sim_doze(doze, polls);
		else if (now - worked < SPIN)
			sched_yield();
		else
			sim_nap(nap);
		doze = doze * 2 > LONGEST_DOZE ? LONGEST_DOZE : doze * 2;
		before = turns;
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
	pthread_setname_np(t, "simhca");
	pthread_detach(t);
}

/* In the child of a fork there is no thread. */
void sim_engine_forget(void) { running = false; }
