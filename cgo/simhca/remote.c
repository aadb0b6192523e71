//go:build simhca && linux && cgo

/* The memory of processes: this one's, or another one's of the fabric, which may be stopped. */
#include "fabric.h"
#include <sched.h>
#include <sys/uio.h>

_Static_assert(sizeof(struct sim_piece) == sizeof(struct iovec) && offsetof(struct sim_piece, len) == offsetof(struct iovec, iov_len), "layout");

static uint64_t total(const struct sim_piece *p, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += p[i].len;
	return sum;
}

/* Copies as much as both lists hold, to a process or from there. An errno: ESRCH if it cannot be reached. */
int sim_transfer(struct sim_node *far, bool store, struct sim_piece *here, int nhere, struct sim_piece *there, int nthere)
{
	static bool told;
	uint64_t a = total(here, nhere), b = total(there, nthere), want = a < b ? a : b;
	ssize_t got;
	int err;

	if (far == sim_self) {
		if (store)
			sim_copy(there, nthere, here, nhere);
		else
			sim_copy(here, nhere, there, nthere);
		return 0;
	}
	if (!want)
		return 0;
	got = (store ? process_vm_writev : process_vm_readv)(sim_pid_of(far->slot), (struct iovec *)here, nhere, (struct iovec *)there, nthere, 0);
	if (got == (ssize_t)want)
		return 0;
	err = got < 0 ? errno : EFAULT;
	if (err == EFAULT)
		return sim_refuse(EFAULT, "process %d has no memory there", sim_pid_of(far->slot));
	if (err != ESRCH && !told)
		sim_print("the memory of process %d: %s. The fabric needs process_vm_readv: kernel.yama.ptrace_scope of 0 or 1, and no filter of system calls against it",
			  sim_pid_of(far->slot), strerror(err));
	told |= err != ESRCH;
	return ESRCH;
}

static uint32_t *lock_of(struct sim_node *n, const uint8_t *word)
{
	return &sim_gate(n->slot)->locks[((uintptr_t)word >> 3) * 0x9e3779b1u >> 8 & (FABRIC_LOCKS - 1)];
}

/*
 * Keeps the atomics of other processes away from a word of a process; false: one is at it.
 * The lock of a process that has died is taken from it, that of one that is stopped is not.
 */
bool sim_hold_word(struct sim_node *n, const uint8_t *word)
{
	enum { SPINS = 100 };
	uint32_t me = sim_self->slot + 1, *l, was = 0;

	if (!sim_fabric)
		return true;
	l = lock_of(n, word);
	for (int i = 0; i < SPINS; i++) {
		was = 0;
		if (__atomic_compare_exchange_n(l, &was, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return true;
	}
	sched_yield();
	return !sim_alive(was - 1) && __atomic_compare_exchange_n(l, &was, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

void sim_release_word(struct sim_node *n, const uint8_t *word)
{
	uint32_t me = sim_self->slot + 1;

	if (sim_fabric)
		__atomic_compare_exchange_n(lock_of(n, word), &me, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
