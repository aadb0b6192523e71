#ifndef GOVERBS_WAITING_H
#define GOVERBS_WAITING_H

#include "../driver.h"

/*
 * A completion queue and its channel as gv_wait_step (shim.h) sees them. Before each
 * of its calls, told by their order, others do something: come completions come, of
 * which another goroutine's poll takes some.
 */
enum { WAITING_CALLS = 8 };

struct standin_waiting {
	struct ibv_context ctx;
	struct ibv_cq cq;
	struct ibv_comp_channel channel;

	uint8_t come[WAITING_CALLS], take[WAITING_CALLS];
	int calls; /* of the step so far */

	int queued; /* completions */
	int asked;  /* the next one raises an event */
	int unread; /* events in the channel */
	int most;   /* that were unread at a time */
	int raised; /* since the step began */
	int read, acked;
};

struct standin_waiting *standin_waiting_new(void);

/* Completions come, and others take some. */
void standin_waiting_others(struct standin_waiting *w, int come, int take);

/* What others do before the next call of a step. */
void standin_waiting_next(struct standin_waiting *w);

/* Puts the channel's functions into the table, and gives it back as it was. */
void standin_waiting_install(uintptr_t table);
void standin_waiting_remove(uintptr_t table);

#endif
