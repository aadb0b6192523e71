//go:build simhca && linux && cgo

/*
 * Messages between processes. A ring lies with its sender, one for each receiver; the
 * receiver's devices look into it when its gate says so. An entry is the sender's, then the
 * receiver's, then, if it is to be answered, the sender's again.
 */
#include "fabric.h"

/* The next message to a process, to be filled; NULL: there is no room. */
struct sim_message *sim_compose(int slot)
{
	struct sim_outbox *b = sim_self->outboxes[slot];
	uint32_t generation = sim_gate(slot)->generation;
	struct sim_message *m;

	if (!b) {
		b = sim_new(sizeof(*b));
		if (!b)
			return NULL;
		b->generation = generation;
		__atomic_store_n(&sim_self->outboxes[slot], b, __ATOMIC_RELEASE);
	}
	if (b->generation != generation) { /* what is in it was for a process that has ended */
		memset(b, 0, sizeof(*b));
		b->generation = generation;
	}
	m = &b->ring[b->head % FABRIC_RING];
	return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == SIM_FREE ? m : NULL;
}

/* Sends it, and returns the number by which it is asked for. */
uint64_t sim_post(int slot, struct sim_message *m)
{
	static uint64_t serial;

	m->serial = ++serial;
	__atomic_store_n(&m->state, SIM_SENT, __ATOMIC_RELEASE);
	sim_self->outboxes[slot]->head++;
	sim_wake(slot);
	return serial;
}

/* The state of a message, SIM_FREE if it is no more. */
uint32_t sim_state_of(const struct sim_message *m, uint64_t serial)
{
	uint32_t state = __atomic_load_n(&m->state, __ATOMIC_ACQUIRE);

	return m->serial == serial ? state : SIM_FREE;
}

void sim_forget_message(struct sim_message *m) { __atomic_store_n(&m->state, SIM_FREE, __ATOMIC_RELEASE); }

/* Takes a message back; false: the receiver is at it. */
bool sim_recall(struct sim_message *m, uint64_t serial)
{
	uint32_t was = SIM_SENT;

	switch (sim_state_of(m, serial)) {
	case SIM_SENT:
		return __atomic_compare_exchange_n(&m->state, &was, SIM_RECALLED, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	case SIM_TAKEN:
		return false;
	case SIM_ANSWERED:
		sim_forget_message(m);
	}
	return true;
}

/* Takes one message out of a ring; false: there is none. */
static bool take(struct sim_node *from, struct sim_outbox *b, bool *answers)
{
	struct sim_message *m = &b->ring[b->tail % FABRIC_RING];
	uint32_t was = SIM_SENT;

	if (!__atomic_compare_exchange_n(&m->state, &was, SIM_TAKEN, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (was != SIM_RECALLED)
			return false;
		sim_forget_message(m);
	} else {
		if (m->device < (uint32_t)sim_self->ndevices && !sim_self->devices[m->device].removed)
			sim_self->devices[m->device].model->arrive(from, m);
		*answers |= m->answered;
		__atomic_store_n(&m->state, m->answered ? SIM_ANSWERED : SIM_FREE, __ATOMIC_RELEASE);
	}
	b->tail++;
	return true;
}

static bool receive_from(int slot)
{
	enum sim_entry entry = sim_enter(slot);
	struct sim_node *from;
	struct sim_outbox *b;
	bool answers = false;
	int n = 0;

	if (entry == SIM_IN) {
		from = sim_node_of(slot);
		b = __atomic_load_n(&from->outboxes[sim_self->slot], __ATOMIC_ACQUIRE);
		if (b && b->generation == sim_gate(sim_self->slot)->generation)
			while (n < FABRIC_RING && take(from, b, &answers))
				n++;
		sim_leave();
	}
	if (entry == SIM_BUSY || n == FABRIC_RING) { /* again, and if a thread of the program was here, by another one */
		__atomic_fetch_or(&sim_gate(sim_self->slot)->inbox[slot / 64], 1ull << slot % 64, __ATOMIC_RELAXED);
		sim_rouse();
	}
	if (answers)
		sim_wake(slot);
	return n > 0;
}

/* Takes in what other processes have sent; true if there was something. */
bool sim_receive(void)
{
	bool busy = false;

	if (!sim_fabric)
		return false;
	for (int i = 0; i < SIM_NODES / 64; i++) {
		uint64_t *word = &sim_gate(sim_self->slot)->inbox[i], bits = 0;

		if (__atomic_load_n(word, __ATOMIC_RELAXED))
			bits = __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);
		for (; bits; bits &= bits - 1)
			busy |= receive_from(i * 64 + __builtin_ctzll(bits));
	}
	return busy;
}
