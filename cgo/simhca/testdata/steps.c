/*
 * Processes of one fabric that are stopped, continued and killed at any step of a request, in the
 * middle of what they do for others; and many processes with many queue pairs.
 */
#include "peer.h"

enum { ROUNDS = 16, PROCESSES = 64 };

static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND };

static uint32_t length(enum ibv_wr_opcode op) { return op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LONG; }

/* A peer that dies in the middle of requests to this process leaves nothing behind that they stand on. */
static void requester_dies(struct side *s, const char *self, int round)
{
	struct timespec end, now;
	struct peer p;
	struct ibv_wc wc;

	start(&p, self);
	pair(s, &p);
	for (int i = 0; i < 8; i++)
		receive(s);
	order(&p, "WRAS"[round % 4]);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += rand() % 5000000;
	do { /* SENDs need receives */
		if (ibv_poll_cq(s->cq, 1, &wc) == 1)
			receive(s);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec);
	end_peer(&p);
	while (ibv_poll_cq(s->cq, 1, &wc) == 1)
		;
}

/* Requests go on when their target does, and end when it dies. */
static void target_dies(struct side *s, const char *self, int round)
{
	enum ibv_wr_opcode op = ops[round % 4];
	struct ibv_wc wc;
	struct peer p;
	bool early;

	start(&p, self);
	pair(s, &p);
	order(&p, 'T');
	for (int i = 0; i < 3; i++) {
		post(s, op, WORD, length(op), 1);
		usleep(rand() % 300);
		stop(&p);
		early = done_within(s, &wc, op == IBV_WR_SEND ? 0.002 : 1);
		CHECK(early || op == IBV_WR_SEND);
		CHECK(!kill(p.pid, SIGCONT));
		CHECK(early || done_within(s, &wc, 1));
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	post(s, op, WORD, length(op), 1);
	usleep(rand() % 100);
	end_peer(&p);
	CHECK(done_within(s, &wc, 2));
	CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR);
	post(s, op, WORD, length(op), 1);
	CHECK(done_within(s, &wc, 2));
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
}

/* Each queue pair of a process is connected with one of another process. */
static void crowd(const char *self)
{
	static struct peer p[PROCESSES];
	static uint32_t numbers[PROCESSES][QPS];

	for (int i = 0; i < PROCESSES; i++)
		start(&p[i], self);
	for (int i = 0; i < PROCESSES; i++)
		order(&p[i], 'Q');
	for (int i = 0; i < PROCESSES; i++) {
		CHECK(recv(p[i].fd, numbers[i], sizeof(numbers[i]), MSG_WAITALL) == sizeof(numbers[i]));
		obeyed(&p[i]);
	}
	for (int i = 0; i < PROCESSES; i++) {
		order(&p[i], 'P');
		CHECK(write(p[i].fd, &p[i ^ 1].address, sizeof(p->address)) == sizeof(p->address));
		CHECK(write(p[i].fd, numbers[i ^ 1], sizeof(numbers[i])) == sizeof(numbers[i]));
	}
	for (int i = 0; i < PROCESSES; i++)
		obeyed(&p[i]);
	for (int i = 0; i < PROCESSES; i++)
		order(&p[i], 'X');
	for (int i = 0; i < PROCESSES; i++)
		obeyed(&p[i]);
	for (int i = 0; i < PROCESSES; i++)
		end_peer(&p[i]);
}

int main(int argc, char **argv)
{
	const char *text = getenv("GOVERBS_SEED");
	unsigned seed = text ? atoi(text) : time(NULL);
	struct side s = {};

	alarm(100);
	if (argc > 1)
		obey(atoi(argv[1]));
	printf("GOVERBS_SEED=%u\n", seed);
	srand(seed);
	make(&s);
	for (int i = 0; i < ROUNDS; i++) {
		requester_dies(&s, argv[0], i);
		target_dies(&s, argv[0], i);
	}
	crowd(argv[0]);
	return 0;
}
