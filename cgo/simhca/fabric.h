#ifndef SIMHCA_FABRIC_H
#define SIMHCA_FABRIC_H

#include "sim.h"

enum {
	FABRIC_LOCKS = 64,
	FABRIC_RING = 60,
	FABRIC_HEADER = 1 << 20,
};

/* What other processes write to, of one process. Nothing here moves or goes while the fabric exists. */
struct fabric_gate {
	int pid; /* 0: none */
	uint32_t generation, gone; /* equal if that generation is known to be dead */
	uint32_t changing;         /* what others look at */
	uint32_t asleep;           /* its thread waits here until another process wakes it */
	uint32_t locks[FABRIC_LOCKS]; /* of words in its memory: 1 + the slot of the holder */
	uint64_t inbox[SIM_NODES / 64]; /* processes that have written to it */
	_Alignas(64) uint32_t inside; /* 1 + the slot of the process whose objects its devices look at */
};

struct fabric {
	uint64_t version;
	uint32_t last; /* slot that was given out */
	uint64_t busy[SIM_RULES]; /* until then the way of a rule is */
	struct fabric_gate gates[SIM_NODES];
};

/* Messages from one process to another, in the sender's memory. */
struct sim_outbox {
	uint32_t generation; /* of the receiver */
	uint32_t head, tail;
	struct sim_message ring[FABRIC_RING];
};

_Static_assert(sizeof(struct fabric) <= FABRIC_HEADER, "room for the gates");

extern struct fabric *sim_fabric; /* NULL: there is none */

int sim_pid_of(int slot);

/* Its file (fabric_file.c). */
int fabric_holder(int fd, int from, int n);
bool fabric_lock(int fd, int from, int type, bool wait);
int fabric_open(const char *name, char *path, size_t size);

static inline struct fabric_gate *sim_gate(int slot) { return &sim_fabric->gates[slot]; }

#endif
