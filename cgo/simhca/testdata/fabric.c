/*
 * Processes of one fabric: a target, which is stopped, continued and killed, and requesters
 * that go on. The program starts itself: with an argument it is a peer that obeys its parent.
 */
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

enum { LONG = 300000, WORD = 4096, ADDS = 5000 };

static void post(struct side *s, enum ibv_wr_opcode op, uint64_t to, uint32_t len, uint64_t add)
{
	struct ibv_sge sge = { (uintptr_t)s->memory, len, s->mr->lkey };
	struct ibv_send_wr *bad, w = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED, .imm_data = 7 };

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w.wr.atomic.remote_addr = s->peer.at + to;
		w.wr.atomic.rkey = s->peer.rkey;
		w.wr.atomic.compare_add = add;
	} else {
		w.wr.rdma.remote_addr = s->peer.at + to;
		w.wr.rdma.rkey = s->peer.rkey;
	}
	CHECK(!ibv_post_send(s->qp, &w, &bad));
}

static bool done_within(struct side *s, struct ibv_wc *wc, double seconds)
{
	struct timespec now, start;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (!(n = ibv_poll_cq(s->cq, 1, wc))) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 > seconds)
			return false;
	}
	CHECK(n == 1);
	return true;
}

static int done(struct side *s)
{
	struct ibv_wc wc;

	CHECK(done_within(s, &wc, 10));
	return wc.status;
}

static int execute(struct side *s, enum ibv_wr_opcode op, uint64_t to, uint32_t len)
{
	post(s, op, to, len, 1);
	return done(s);
}

static void await_message(struct side *s, enum ibv_wc_opcode op, uint32_t len)
{
	struct ibv_wc wc;

	CHECK(done_within(s, &wc, 10));
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == op && wc.byte_len == len);
}

static void receive(struct side *s)
{
	struct ibv_sge sge = { (uintptr_t)s->memory + BYTES / 2, LONG, s->mr->lkey };
	struct ibv_recv_wr *bad, w = { .sg_list = &sge, .num_sge = 1 };

	CHECK(!ibv_post_recv(s->qp, &w, &bad));
}

/* ---- a peer ---- */

static void obey(int fd)
{
	struct side s = {};
	struct address a;
	struct ibv_mr *again;
	char order;

	make(&s);
	CHECK(write(fd, &s.self, sizeof(s.self)) == sizeof(s.self));
	while (read(fd, &order, 1) == 1) {
		switch (order) {
		case 'c':
			CHECK(read(fd, &a, sizeof(a)) == sizeof(a));
			connect_to(&s, &a);
			break;
		case 'r': /* one receive */
			receive(&s);
			break;
		case 's': /* takes a message of one byte, of many, and a WRITE's number */
			await_message(&s, IBV_WC_RECV, 1);
			CHECK(s.memory[BYTES / 2] == 's');
			receive(&s);
			await_message(&s, IBV_WC_RECV, LONG);
			for (int i = 0; i < LONG; i++)
				CHECK(s.memory[BYTES / 2 + i] == (uint8_t)(i * 7));
			receive(&s);
			await_message(&s, IBV_WC_RECV_RDMA_WITH_IMM, 100);
			break;
		case 'm': /* takes a message of one byte */
			await_message(&s, IBV_WC_RECV, 1);
			break;
		case 'k': /* the region's key ends while requests come, and there is another one */
			again = ibv_reg_mr(s.pd, s.memory, BYTES, IBV_ACCESS_LOCAL_WRITE);
			CHECK(again);
			CHECK(!ibv_dereg_mr(s.mr));
			memset(s.memory, 'k', BYTES);
			s.mr = again;
			break;
		case 'w': /* nothing has been written since */
			for (int i = 0; i < BYTES; i++)
				CHECK(s.memory[i] == 'k');
			break;
		case 'e': { /* the queue pair is in error, and the program is told */
			struct ibv_async_event e;
			struct ibv_qp_attr attr;
			struct ibv_qp_init_attr init;

			CHECK(!ibv_get_async_event(s.ctx, &e) && e.event_type == IBV_EVENT_QP_ACCESS_ERR && e.element.qp == s.qp);
			ibv_ack_async_event(&e);
			CHECK(!ibv_query_qp(s.qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
			break;
		}
		case 'a': /* adds to a word of a third process's memory */
			for (int i = 0; i < ADDS; i++)
				CHECK(execute(&s, IBV_WR_ATOMIC_FETCH_AND_ADD, WORD, 8) == IBV_WC_SUCCESS);
			break;
		default:
			CHECK(!"an order that is known");
		}
		CHECK(write(fd, &order, 1) == 1);
	}
	exit(0);
}

struct peer { pid_t pid; int fd; struct address address; };

static void start(struct peer *p, const char *self)
{
	int fds[2];
	char number[16];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	CHECK((p->pid = fork()) >= 0);
	if (!p->pid) {
		close(fds[0]);
		snprintf(number, sizeof(number), "%d", fds[1]);
		execl(self, self, number, NULL);
		_exit(1);
	}
	close(fds[1]);
	p->fd = fds[0];
	CHECK(read(p->fd, &p->address, sizeof(p->address)) == sizeof(p->address));
}

static void order(struct peer *p, char what) { CHECK(write(p->fd, &what, 1) == 1); }

static void obeyed(struct peer *p)
{
	char c;

	CHECK(read(p->fd, &c, 1) == 1);
}

static void order_to_connect(struct peer *p, struct address a)
{
	order(p, 'c');
	CHECK(write(p->fd, &a, sizeof(a)) == sizeof(a));
	obeyed(p);
}

static void pair(struct side *s, struct peer *p)
{
	order_to_connect(p, s->self);
	connect_to(s, &p->address);
}

static void stop(struct peer *p)
{
	int status;

	CHECK(!kill(p->pid, SIGSTOP));
	CHECK(waitpid(p->pid, &status, WUNTRACED) == p->pid && WIFSTOPPED(status));
}

static void end(struct peer *p)
{
	CHECK(!kill(p->pid, SIGKILL));
	CHECK(waitpid(p->pid, NULL, 0) == p->pid);
	close(p->fd);
}

/* ---- tests ---- */

static void one_sided(struct side *s)
{
	memset(s->memory, 'x', LONG);
	CHECK(execute(s, IBV_WR_RDMA_WRITE, 0, LONG) == IBV_WC_SUCCESS);
	memset(s->memory, 0, LONG);
	CHECK(execute(s, IBV_WR_RDMA_READ, 0, LONG) == IBV_WC_SUCCESS);
	for (int i = 0; i < LONG; i++)
		CHECK(s->memory[i] == 'x');
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t old = 0x7878787878787878ull + i;

		CHECK(execute(s, IBV_WR_ATOMIC_FETCH_AND_ADD, WORD, 8) == IBV_WC_SUCCESS);
		CHECK(!memcmp(s->memory, &old, 8));
	}
}

static void messages(struct side *s, struct peer *p)
{
	order(p, 'r');
	obeyed(p);
	order(p, 's');
	s->memory[0] = 's';
	CHECK(execute(s, IBV_WR_SEND, 0, 1) == IBV_WC_SUCCESS);
	for (int i = 0; i < LONG; i++)
		s->memory[i] = i * 7;
	CHECK(execute(s, IBV_WR_SEND, 0, LONG) == IBV_WC_SUCCESS); /* which may have to wait for its receive */
	CHECK(execute(s, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 100) == IBV_WC_SUCCESS);
	obeyed(p);
}

/* A device answers for a process that is stopped; what it takes messages with does not. */
static void stopped(struct side *s, struct peer *p)
{
	struct ibv_wc wc;

	for (int i = 0; i < 20; i++) {
		order(p, 'r');
		obeyed(p);
		order(p, 'm'); /* it polls when it is stopped */
		usleep(i * 50);
		stop(p);
		one_sided(s);
		post(s, IBV_WR_SEND, 0, 1, 0);
		CHECK(!done_within(s, &wc, 0.01));
		CHECK(!kill(p->pid, SIGCONT));
		CHECK(done(s) == IBV_WC_SUCCESS);
		obeyed(p);
	}
}

static void refused(struct side *s, struct peer *p)
{
	s->peer.rkey ^= 1;
	CHECK(execute(s, IBV_WR_RDMA_READ, 0, 8) == IBV_WC_REM_ACCESS_ERR);
	order(p, 'e');
	obeyed(p);
	pair(s, p);
	CHECK(execute(s, IBV_WR_RDMA_READ, BYTES - 7, 8) == IBV_WC_REM_ACCESS_ERR);
	order(p, 'e');
	obeyed(p);
}

/* Nothing is written under a key whose end the target has seen. */
static void deregistered(struct side *s, struct peer *p)
{
	int status;

	pair(s, p);
	order(p, 'k');
	memset(s->memory, 'v', LONG);
	while (!(status = execute(s, IBV_WR_RDMA_WRITE, 0, LONG)))
		;
	CHECK(status == IBV_WC_REM_ACCESS_ERR);
	obeyed(p);
	order(p, 'w');
	obeyed(p);
}

/* Two processes and the target's own device add to one word. */
static void added(struct side *s, const char *self)
{
	struct side own = {};
	struct peer p[2];
	uint64_t sum;

	make(&own);
	for (int i = 0; i < 2; i++)
		start(&p[i], self);
	/* Each is connected with a queue pair of this process's. */
	struct side *ends[2] = { s, &own };

	for (int i = 0; i < 2; i++) {
		struct address a = ends[i]->self;

		a.at = s->self.at;
		a.rkey = s->self.rkey;
		if (i) /* both in one protection domain */
			CHECK(!ibv_destroy_qp(own.qp));
		if (i) {
			struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .send_cq = own.cq, .recv_cq = own.cq,
				.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };

			init.send_cq = init.recv_cq = s->cq;
			CHECK(own.qp = ibv_create_qp(s->pd, &init));
			a.qpn = own.qp->qp_num;
		}
		order_to_connect(&p[i], a);
		connect_to(ends[i], &p[i].address);
	}
	memset(s->memory + WORD, 0, 8);
	for (int i = 0; i < 2; i++)
		order(&p[i], 'a');
	for (int i = 0; i < 2; i++)
		obeyed(&p[i]);
	memcpy(&sum, s->memory + WORD, 8);
	CHECK(sum == 2 * ADDS);
	for (int i = 0; i < 2; i++)
		end(&p[i]);
	CHECK(!ibv_destroy_qp(own.qp));
	CHECK(!ibv_close_device(own.ctx));
}

static void killed(struct side *s, struct peer *p)
{
	int status, n = 0;

	pair(s, p);
	while (!(status = execute(s, IBV_WR_RDMA_READ, 0, 64)))
		if (++n == 1000)
			CHECK(!kill(p->pid, SIGKILL));
	CHECK(n >= 1000 && status == IBV_WC_RETRY_EXC_ERR);
	CHECK(waitpid(p->pid, NULL, 0) == p->pid);
	connect_to(s, &p->address);
	CHECK(execute(s, IBV_WR_SEND, 0, 1) == IBV_WC_RETRY_EXC_ERR);
	close(p->fd);
}

/* Processes come and go, and no number comes again soon. */
static void many(struct side *s, const char *self)
{
	struct address seen[30];

	for (int i = 0; i < 30; i++) {
		struct peer p;

		start(&p, self);
		seen[i] = p.address;
		CHECK(p.address.qpn != s->self.qpn && p.address.rkey != s->self.rkey && memcmp(&p.address.gid, &s->self.gid, 16));
		for (int k = 0; k < i; k++)
			CHECK(memcmp(&seen[k].gid, &p.address.gid, 16) && seen[k].qpn != p.address.qpn && seen[k].rkey != p.address.rkey);
		if (i % 10 == 0) {
			pair(s, &p);
			one_sided(s);
		}
		end(&p);
	}
}

int main(int argc, char **argv)
{
	struct side s = {};
	struct peer p;

	alarm(60);
	if (argc > 1)
		obey(atoi(argv[1]));
	make(&s);
	start(&p, argv[0]);
	pair(&s, &p);
	one_sided(&s);
	messages(&s, &p);
	stopped(&s, &p);
	refused(&s, &p);
	deregistered(&s, &p);
	end(&p);
	added(&s, argv[0]);
	start(&p, argv[0]);
	killed(&s, &p);
	many(&s, argv[0]);
	return 0;
}
