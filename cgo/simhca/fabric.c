//go:build simhca && linux && cgo

/*
 * The fabric: processes of one user whose devices reach each other. It is a file that each
 * of them maps at one address: a gate for each process, and behind the gates what each
 * process has (struct sim_node). The requester's process acts as the responder's device: it
 * looks at the responder's objects and moves its memory (remote.c), whether the responder
 * runs or not. What needs the responder itself goes by messages (messages.c).
 *
 * A process is alive while it holds the lock of its byte of the file, which the kernel
 * releases when it ends. A slot, and all numbers that come from it, is not given out again
 * before all others were.
 */
#include "fabric.h"
#include "fault.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ADDRESS 0x410000000000ull /* where no sanitizer has anything */

enum { NODE_BYTES = 1 << 27, GROWTH = 1 << 18, SMALLEST = 64, CLASSES = 22, PATIENCE = 1000000, SHORT_PATIENCE = 20000 /* ns */ };

/* The layout of what processes share: the first number counts changes of it. */
static const uint64_t version = 3ull << 32 | (sizeof(struct sim_node) ^ sizeof(struct fabric) ^ sizeof(struct sim_outbox));

struct fabric *sim_fabric;

static int file = -1;
static uint64_t used, backed; /* bytes of our part of the file */
static void *freed[CLASSES];
static struct { uint32_t generation; int pid; bool mapped; } peers[SIM_NODES];

static uint64_t offset_of(int slot) { return FABRIC_HEADER + (uint64_t)slot * NODE_BYTES; }

static void *map(uint64_t offset, size_t len)
{
	void *at = (void *)(ADDRESS + offset), *p = sim_real.mmap(at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, offset);

	if (p == at)
		return p;
	if (p != MAP_FAILED)
		munmap(p, len);
	sim_print("the fabric cannot be mapped: %s", p == MAP_FAILED ? strerror(errno) : "its address is taken");
	return NULL;
}

/* Tells whether a process still is. */
bool sim_alive(int slot)
{
	struct fabric_gate *g = sim_gate(slot);
	uint32_t generation = __atomic_load_n(&g->generation, __ATOMIC_SEQ_CST);

	if (slot == sim_self->slot || fabric_holder(file, slot, 1))
		return true;
	__atomic_store_n(&g->gone, generation, __ATOMIC_SEQ_CST);
	return false;
}

/*
 * Waits until no other process looks at the objects of one, or for so many nanoseconds; false: one still does.
 * One that is stopped meanwhile is waited for.
 */
static bool await_leaving(int slot, uint64_t limit)
{
	uint64_t start = 0;

	for (int i = 0; i < SIM_NODES; i++) {
		uint64_t since = 0;

		while (i != sim_self->slot && __atomic_load_n(&sim_gate(i)->inside, __ATOMIC_SEQ_CST) == (uint32_t)slot + 1) {
			uint64_t now = sim_now();

			start = start ? start : now;
			since = since ? since : now;
			if (limit && now - start > limit)
				return false;
			sched_yield();
			if (now - since < PATIENCE)
				continue;
			if (!sim_alive(i))
				break;
			since = 0;
		}
	}
	return true;
}

static bool back(int slot, uint64_t bytes)
{
	int err;

	do
		err = posix_fallocate(file, offset_of(slot) + backed, bytes);
	while (err == EINTR);
	if (err)
		sim_print("no room for the fabric: %s", strerror(err));
	else
		backed += bytes;
	return !err;
}

/* Frees what processes have left that are no more. */
static void clean(void)
{
	for (int i = 0; i < SIM_NODES; i++) {
		struct fabric_gate *g = sim_gate(i);

		if (!g->pid || sim_alive(i))
			continue;
		g->pid = 0;
		await_leaving(i, 0);
		fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_of(i), NODE_BYTES);
	}
}

/* Takes the next slot that is free. */
static bool claim(void)
{
	struct fabric_gate *g;
	struct sim_node *n;
	int slot = -1;

	for (uint32_t k = 1; slot < 0 && k <= SIM_NODES; k++)
		if (fabric_lock(file, (sim_fabric->last + k) % SIM_NODES, F_WRLCK, false))
			slot = (sim_fabric->last + k) % SIM_NODES;
	if (slot < 0) {
		sim_print("the fabric is full: it has %d processes", SIM_NODES);
		return false;
	}
	n = map(offset_of(slot), NODE_BYTES);
	if (!n)
		return false;
	peers[slot].mapped = true;
	if (!back(slot, (sizeof(*n) + GROWTH - 1) / GROWTH * GROWTH))
		return false;
	used = (sizeof(*n) + SMALLEST - 1) / SMALLEST * SMALLEST;
	n->slot = slot;
	sim_self = n;
	sim_fabric->last = slot;
	g = sim_gate(slot);
	g->generation++;
	g->changing = g->asleep = g->inside = 0;
	memset(g->inbox, 0, sizeof(g->inbox));
	memset(g->locks, 0, sizeof(g->locks));
	__atomic_store_n(&g->pid, getpid(), __ATOMIC_SEQ_CST);
	return true;
}

/* Gives the file its size, all of it free, and the header its memory. */
static bool lay_out(void)
{
	if (ftruncate(file, 0) || ftruncate(file, offset_of(SIM_NODES)))
		return false;
	errno = posix_fallocate(file, 0, FABRIC_HEADER);
	return !errno;
}

/* Maps the file, which the first process in it makes anew. */
static bool enter_file(const char *path)
{
	struct { uint64_t version; uint32_t last; } old = {};
	bool first = !fabric_holder(file, 0, SIM_NODES);

	if (pread(file, &old, sizeof(old), 0) < 0 || (!first && old.version != version)) {
		sim_print("%s is used by programs with another simhca", path);
		return false;
	}
	if (first && !lay_out()) {
		sim_print("%s: %s", path, strerror(errno));
		return false;
	}
	sim_fabric = map(0, FABRIC_HEADER);
	if (!sim_fabric)
		return false;
	if (first) {
		sim_fabric->version = version;
		sim_fabric->last = old.version ? old.last % SIM_NODES : SIM_NODES - 1;
	}
	return true;
}

/* Makes this process, which has no devices yet, one of those of a fabric. */
bool sim_fabric_join(const char *name)
{
	char path[128];
	bool in;

	sim_self->slot = -1; /* until it is in */
	file = fabric_open(name, path, sizeof(path));
	if (file < 0)
		return false;
	sim_impair_by(path);
	in = enter_file(path);
	if (in) {
		clean();
		in = claim();
	}
	fabric_lock(file, SIM_NODES, F_UNLCK, false);
	if (!in)
		return false;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* fails where it is not needed */
	return true;
}

/* In the child of a fork: its parent's place is not the child's, whose devices are gone. */
void sim_fabric_forget(void)
{
	struct sim_node *n;

	if (!sim_fabric)
		return;
	n = calloc(1, sizeof(*n));
	n->ndevices = sim_self->ndevices;
	memcpy(n->devices, sim_self->devices, sizeof(n->devices));
	for (int i = 0; i < n->ndevices; i++) {
		n->devices[i].node = n;
		n->devices[i].removed = true;
	}
	sim_self = n;
	sim_fabric = NULL;
	sim_real.close(file);
	file = -1;
}

bool sim_in_fabric(void) { return sim_fabric; }

/* How many processes the fabric has, about. */
int sim_processes(void)
{
	int n = 0;

	for (int i = 0; sim_fabric && i < SIM_NODES; i++)
		n += __atomic_load_n(&sim_gate(i)->pid, __ATOMIC_RELAXED) != 0;
	return n;
}

/* Tells whether a descriptor is what keeps this process in the fabric, which a program that closes all must not close. */
bool sim_fabric_file(int fd) { return sim_fabric && fd == file; }

struct sim_node *sim_node_of(int slot)
{
	if (slot == sim_self->slot)
		return sim_self;
	if (!sim_fabric || slot < 0 || slot >= SIM_NODES)
		return NULL;
	if (!peers[slot].mapped && map(offset_of(slot), NODE_BYTES))
		peers[slot].mapped = true;
	return peers[slot].mapped ? (struct sim_node *)(ADDRESS + offset_of(slot)) : NULL;
}

/* The number of a process, as this one has it. */
int sim_pid_of(int slot) { return peers[slot].pid; }

/* Tells whether others wait for a process, if it is stopped now: in the middle of a change or a look, or with a word's lock. */
int simhca_awaited(int pid)
{
	for (int i = 0; sim_fabric && i < SIM_NODES; i++) {
		struct fabric_gate *g = sim_gate(i);

		if (__atomic_load_n(&g->pid, __ATOMIC_SEQ_CST) != pid)
			continue;
		if (__atomic_load_n(&g->changing, __ATOMIC_SEQ_CST) || __atomic_load_n(&g->inside, __ATOMIC_SEQ_CST))
			return true;
		for (int k = 0; k < SIM_NODES * FABRIC_LOCKS; k++)
			if (__atomic_load_n(&sim_gate(k / FABRIC_LOCKS)->locks[k % FABRIC_LOCKS], __ATOMIC_SEQ_CST) == (uint32_t)i + 1)
				return true;
	}
	return false;
}

/* Takes note of a process that was not there before. */
static bool meet(int slot)
{
	struct fabric_gate *g = sim_gate(slot);
	uint32_t generation = __atomic_load_n(&g->generation, __ATOMIC_SEQ_CST);
	int pid = fabric_holder(file, slot, 1);

	if (!pid)
		__atomic_store_n(&g->gone, generation, __ATOMIC_SEQ_CST);
	if (pid < 0)
		sim_print("a process of the fabric is in another PID namespace");
	if (pid <= 0 || !sim_node_of(slot))
		return false;
	peers[slot].pid = pid;
	peers[slot].generation = generation;
	return true;
}

/* Looks at the objects of a process from now on, which it does not change until sim_leave. */
enum sim_entry sim_enter(int slot)
{
	struct fabric_gate *g;
	static uint32_t tries;

	if (slot == sim_self->slot)
		return SIM_IN;
	if (!sim_fabric || slot < 0 || slot >= SIM_NODES)
		return SIM_GONE;
	g = sim_gate(slot);
	__atomic_store_n(&sim_gate(sim_self->slot)->inside, slot + 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&g->changing, __ATOMIC_SEQ_CST)) {
		sim_leave();
		return ++tries % 1024 || sim_alive(slot) ? SIM_BUSY : SIM_GONE;
	}
	if (!__atomic_load_n(&g->pid, __ATOMIC_SEQ_CST) || g->gone == g->generation || (peers[slot].generation != g->generation && !meet(slot))) {
		sim_leave();
		return SIM_GONE;
	}
	return SIM_IN;
}

void sim_leave(void)
{
	if (sim_fabric)
		__atomic_store_n(&sim_gate(sim_self->slot)->inside, 0, __ATOMIC_RELEASE);
}

/* Before and after changes of objects that other processes look at. */
void sim_change(void)
{
	if (!sim_fabric)
		return;
	__atomic_store_n(&sim_gate(sim_self->slot)->changing, 1, __ATOMIC_SEQ_CST);
	await_leaving(sim_self->slot, 0);
}

/* The same by a process that looks at another one's objects, which may wait for it: false, if so. */
bool sim_try_change(void)
{
	if (!sim_fabric)
		return true;
	__atomic_store_n(&sim_gate(sim_self->slot)->changing, 1, __ATOMIC_SEQ_CST);
	if (await_leaving(sim_self->slot, SHORT_PATIENCE))
		return true;
	sim_changed();
	return false;
}

void sim_changed(void)
{
	if (sim_fabric)
		__atomic_store_n(&sim_gate(sim_self->slot)->changing, 0, __ATOMIC_RELEASE);
}

/* Memory that other processes see, set to 0, or NULL. Sizes are powers of two. */
static int class_of(size_t size)
{
	int k = 0;

	while ((size_t)SMALLEST << k < size)
		k++;
	return k;
}

void *sim_new(size_t size)
{
	int k = class_of(size);
	size_t bytes = (size_t)SMALLEST << k;
	void *p = freed[k];

	if (!sim_fabric)
		return calloc(1, size);
	if (p) {
		memcpy(&freed[k], p, sizeof(p));
		return memset(p, 0, size);
	}
	if (used + bytes > backed && (backed + bytes + GROWTH > NODE_BYTES || !back(sim_self->slot, bytes > GROWTH ? bytes : GROWTH)))
		return NULL;
	p = (uint8_t *)sim_self + used;
	used += bytes;
	return p;
}

void sim_delete(void *p, size_t size)
{
	int k = class_of(size);

	if (!sim_fabric) {
		free(p);
		return;
	}
	memcpy(p, &freed[k], sizeof(p));
	freed[k] = p;
}

static uint32_t alone_asleep; /* without a fabric */
static uint32_t resting;

/* Of a thread, in its process's gate: it sleeps, and messages wake it or do not. */
enum { AWAKE, ASLEEP, DOZING };

static uint32_t *asleep(void) { return sim_fabric ? &sim_gate(sim_self->slot)->asleep : &alone_asleep; }

/* Wakes a thread that sleeps so. */
static void wake(uint32_t *asleep, uint32_t was)
{
	if (__atomic_load_n(asleep, __ATOMIC_SEQ_CST) == was && __atomic_compare_exchange_n(asleep, &was, AWAKE, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void await(uint32_t how, uint64_t ns)
{
	struct timespec t = { .tv_nsec = ns };

	syscall(SYS_futex, asleep(), FUTEX_WAIT, how, &t, NULL, 0);
}

/*
 * Has sim_rouse end the next nap, or keep it from beginning, or no longer. The thread calls it before
 * its last look at the queues: what is posted behind that look ends the nap.
 */
void sim_listen(bool on)
{
	__atomic_store_n(asleep(), on, __ATOMIC_SEQ_CST);
	__atomic_store_n(&resting, on, __ATOMIC_SEQ_CST);
}

static bool messages(void)
{
	uint64_t any = 0;

	for (int i = 0; sim_fabric && i < SIM_NODES / 64; i++)
		any |= __atomic_load_n(&sim_gate(sim_self->slot)->inbox[i], __ATOMIC_SEQ_CST);
	return any;
}

/* Sleeps so long, or until another process has something for this one. */
void sim_nap(uint64_t ns)
{
	if (!resting)
		__atomic_store_n(asleep(), ASLEEP, __ATOMIC_SEQ_CST);
	if (!messages())
		await(ASLEEP, ns);
	sim_listen(false);
}

/*
 * Sleeps so long beside a program that polls. While it does, by what polls() tells, it takes in what others send itself, and
 * their messages do not wake this thread, which would take a CPU from it.
 */
void sim_doze(uint64_t ns, bool (*polls)(void))
{
	__atomic_store_n(asleep(), DOZING, __ATOMIC_SEQ_CST);
	if (polls())
		await(DOZING, ns);
	else
		sim_nap(ns);
	sim_listen(false);
}

/* Wakes the thread, if it dozes and the program polls no longer, of which polls() has been told before. */
void sim_attend(void) { wake(asleep(), DOZING); }

/* Ends the rest of this process's thread, for what the caller has stored before. */
void sim_rouse(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&resting, __ATOMIC_RELAXED))
		wake(asleep(), ASLEEP);
}

/* Has a process look at what this one has for it. */
void sim_wake(int slot)
{
	struct fabric_gate *g = sim_gate(slot);

	__atomic_fetch_or(&g->inbox[sim_self->slot / 64], 1ull << sim_self->slot % 64, __ATOMIC_SEQ_CST);
	wake(&g->asleep, ASLEEP);
}
