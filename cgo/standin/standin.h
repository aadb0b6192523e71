#ifndef GOVERBS_STANDIN_H
#define GOVERBS_STANDIN_H

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>

struct standin {
	struct ibv_context ctx;
	struct ibv_qp qp;
	struct ibv_cq cq;
	int fail_at, fail_errno, poll_error, named;
	struct ibv_send_wr *posted; /* the last */
};

/*
 * An extended completion queue with so many successes. Then, or where it is empty
 * from the start, it answers err, as ibv_start_poll and ibv_next_poll do; ENOENT
 * is an empty queue. bad counts calls out of order.
 */
struct standin_cq {
	struct ibv_cq_ex cq;
	int left, err, polling, bad;
};

struct standin_cq *standin_cq_new(int left, int err);
struct standin *standin_new(void);
int64_t standin_post_poll(struct standin *s, int rounds, int batch);
int standin_read_loop(uintptr_t qp, uintptr_t cq, uint64_t addr, uint32_t length, uint32_t lkey, uint64_t raddr,
		      uint32_t rkey, int extra, int64_t *lat, int n);
int64_t standin_spin(int64_t turns);
int64_t standin_now(void); /* ns */
void standin_turn(int64_t n); /* n turns of an empty loop */
int standin_left_out(int before);

/* Accepts connections through librdmacm until there is an error. */
int standin_connect_server(const char *address, uint16_t port);

/* Connects n times through librdmacm, pause ns after the last time, and stores how long each took, in ns. */
int standin_connect_loop(const char *address, uint16_t port, int64_t pause, int64_t *lat, int n);

#endif
