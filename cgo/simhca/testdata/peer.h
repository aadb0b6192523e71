/*
 * Peers of a test in processes of their own, which obey it. The program starts itself: with an
 * argument it is a peer.
 */
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

enum { LONG = 300000, WORD = 4096, ADDS = 5000, VOLLEY = 2000, QPS = 157 };

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

static double since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - start->tv_sec + (now.tv_nsec - start->tv_nsec) / 1e9;
}

/* How long threads of this process have waited for a CPU that other programs had, in seconds. */
static double waited(void)
{
	unsigned long long ran, wait;
	struct dirent *thread;
	DIR *threads = opendir("/proc/self/task");
	double all = 0;

	CHECK(threads);
	while ((thread = readdir(threads))) {
		char path[300];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", thread->d_name);
		if (!(f = fopen(path, "r")))
			continue;
		if (fscanf(f, "%llu %llu", &ran, &wait) == 2)
			all += wait / 1e9;
		fclose(f);
	}
	closedir(threads);
	return all;
}

/* From a rest to what wakes the devices up, in seconds. */
static const double QUICK = 0.002;

struct watch { struct timespec start; double waited; };

static void begin_watch(struct watch *w)
{
	w->waited = waited();
	clock_gettime(CLOCK_MONOTONIC, &w->start);
}

static bool was_quick(const struct watch *w)
{
	double took = since(&w->start);

	return took - (waited() - w->waited) < QUICK;
}

static bool done_within(struct side *s, struct ibv_wc *wc, double seconds)
{
	struct timespec start;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (!(n = ibv_poll_cq(s->cq, 1, wc)))
		if (since(&start) > seconds)
			return false;
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

/* So many messages of one byte there and back, between two processes that poll. */
static void volley(struct side *s, bool begins, int n)
{
	int sent = 0, received = 0;
	struct ibv_wc wc;

	receive(s);
	if (begins)
		post(s, IBV_WR_SEND, 0, 1, 0);
	while (sent < n || received < n) {
		if (!ibv_poll_cq(s->cq, 1, &wc))
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode != IBV_WC_RECV) {
			sent++;
			continue;
		}
		if (++received < n)
			receive(s);
		if (!begins || received < n)
			post(s, IBV_WR_SEND, 0, 1, 0);
	}
}

/* ---- a peer ---- */

/* Requests one after the other, or receives, until it is killed. */
static void forever(struct side *s, char what)
{
	struct ibv_wc wc;

	if (what == 'T')
		for (int i = 0; i < 8; i++)
			receive(s);
	for (;;)
		switch (what) {
		case 'W': execute(s, IBV_WR_RDMA_WRITE, 0, LONG); break;
		case 'R': execute(s, IBV_WR_RDMA_READ, 0, LONG); break;
		case 'A': execute(s, IBV_WR_ATOMIC_FETCH_AND_ADD, WORD, 8); break;
		case 'S': execute(s, IBV_WR_SEND, 0, LONG); break;
		case 'T':
			if (ibv_poll_cq(s->cq, 1, &wc) == 1)
				receive(s);
		}
}

/* Many queue pairs, with a receive each, which are connected with those of another process. */
static struct side many_sides[QPS];

static void make_many(struct side *s, int fd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .send_cq = s->cq, .recv_cq = s->cq,
		.cap = { .max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	uint32_t numbers[QPS];

	for (int i = 0; i < QPS; i++) {
		many_sides[i] = *s;
		CHECK(many_sides[i].qp = ibv_create_qp(s->pd, &init));
		numbers[i] = many_sides[i].qp->qp_num;
	}
	CHECK(write(fd, numbers, sizeof(numbers)) == sizeof(numbers));
}

static void connect_many(struct side *s, int fd)
{
	struct address a;
	uint32_t numbers[QPS];

	CHECK(recv(fd, &a, sizeof(a), MSG_WAITALL) == sizeof(a));
	CHECK(recv(fd, numbers, sizeof(numbers), MSG_WAITALL) == sizeof(numbers));
	for (int i = 0; i < QPS; i++) {
		a.qpn = numbers[i];
		connect_to(&many_sides[i], &a);
		receive(&many_sides[i]);
	}
	s->peer = a;
}

/* A WRITE and a SEND on each, until all have gone and as many have come. */
static void use_many(struct side *s)
{
	struct ibv_wc wc;

	for (int i = 0; i < QPS; i++) {
		post(&many_sides[i], IBV_WR_RDMA_WRITE, i * 8, 8, 0);
		post(&many_sides[i], IBV_WR_SEND, 0, 1, 0);
	}
	for (int n = 0; n < 3 * QPS;) {
		if (ibv_poll_cq(s->cq, 1, &wc) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			n++;
		} else {
			usleep(1000); /* for the other processes */
		}
	}
}

/* Requests of a program that goes past the library: after the first one its devices do not rest. */
static void unseen(struct side *s)
{
	struct watch watch;
	int quick = 0;

	for (int i = 0; i < 11 && quick < 5; i++) {
		struct ibv_sge sge = { (uintptr_t)s->memory, 8, s->mr->lkey };
		struct ibv_send_wr *bad, w = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { s->peer.at, s->peer.rkey } };
		struct ibv_wc wc;

		usleep(200000);
		begin_watch(&watch);
		CHECK(!s->library.post_send(s->qp, &w, &bad));
		while (!s->library.poll_cq(s->cq, 1, &wc))
			CHECK(since(&watch.start) < 1);
		CHECK(wc.status == IBV_WC_SUCCESS);
		quick += i && was_quick(&watch);
	}
	CHECK(quick == 5);
}

/* Where the kernel lets no process reach into others, the program is told what to set, and requests end. */
static void walled(struct side *s)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };
	int before = dup(2), fds[2];
	char said[512] = {};

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter, 0, 0));
	CHECK(!pipe(fds) && dup2(fds[1], 2) == 2);
	CHECK(execute(s, IBV_WR_RDMA_READ, 0, 8) == IBV_WC_RETRY_EXC_ERR);
	CHECK(dup2(before, 2) == 2);
	CHECK(read(fds[0], said, sizeof(said) - 1) > 0);
	CHECK(strstr(said, "Operation not permitted") && strstr(said, "kernel.yama.ptrace_scope"));
}

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
		case 'v':
			volley(&s, false, VOLLEY);
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
		case 'W': case 'R': case 'A': case 'S': case 'T':
			forever(&s, order);
			break;
		case 'U':
			unseen(&s);
			break;
		case 'Q':
			make_many(&s, fd);
			break;
		case 'P':
			connect_many(&s, fd);
			break;
		case 'F':
			walled(&s);
			break;
		case 'X':
			use_many(&s);
			break;
		default:
			CHECK(!"an order that is known");
		}
		CHECK(write(fd, &order, 1) == 1);
	}
	exit(0);
}

/* ---- the test's side of it ---- */

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

static void end_peer(struct peer *p)
{
	CHECK(!kill(p->pid, SIGKILL));
	CHECK(waitpid(p->pid, NULL, 0) == p->pid);
	close(p->fd);
}
