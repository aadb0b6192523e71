/*
 * Processes of one fabric: a target, which is stopped, continued and killed, and requesters
 * that go on.
 */
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/resource.h>

#include "peer.h"

static int wakings; /* of threads by the devices of this process */

/* The devices call this one. */
long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_futex && a[1] == FUTEX_WAKE)
		__atomic_add_fetch(&wakings, 1, __ATOMIC_RELAXED);
	if (!real)
		real = dlsym(RTLD_NEXT, "syscall");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

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

/* Messages that are under way when their queue pair is reset leave their places to others. */
static void abandoned(struct side *s, struct peer *p)
{
	for (int i = 0; i < 300; i++) {
		pair(s, p);
		order(p, 'r');
		obeyed(p);
		post(s, IBV_WR_SEND, 0, LONG, 0);
		usleep(i % 30 * 10);
	}
	pair(s, p);
	messages(s, p);
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
		end_peer(&p[i]);
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

/* How many CPUs are left beside all threads that run; below 0: some of these wait for one. */
static long spare_cpus(void)
{
	FILE *f = fopen("/proc/loadavg", "r");
	int running = 0;

	CHECK(f && fscanf(f, "%*f %*f %*f %d", &running) == 1);
	fclose(f);
	return sysconf(_SC_NPROCESSORS_ONLN) - running;
}

/*
 * A process is reached 100 ms after its start: that of the program, its devices and a connection are in this time. Starts
 * beside other programs that have the CPUs are not judged.
 */
static void soon(struct side *s, const char *self)
{
#ifdef __SANITIZE_ADDRESS__ /* whose own start takes most of it */
	double least = 1, limit = 0.5;
#else
	double least = 1, limit = 0.1;
#endif
	int judged = 0;

	for (int i = 0; i < 10; i++) {
		struct timespec begin;
		struct peer p;
		double took;

		judged += spare_cpus() >= 1;
		clock_gettime(CLOCK_MONOTONIC, &begin);
		start(&p, self);
		pair(s, &p);
		CHECK(execute(s, IBV_WR_RDMA_READ, 0, 8) == IBV_WC_SUCCESS);
		took = since(&begin);
		least = took < least ? took : least;
		end_peer(&p);
	}
	printf("a process is reached %.1f ms after its start\n", least * 1e3);
	CHECK(least < limit || judged < 10);
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
		end_peer(&p);
	}
}

static void await_event(struct side *s)
{
	struct ibv_cq *cq;
	void *user;

	CHECK(!ibv_get_cq_event(s->channel, &cq, &user));
	ibv_ack_cq_events(cq, 1);
}

/*
 * Messages to programs that poll wake no thread. A request for an event wakes the devices' own thread, which then looks at
 * what comes. Rounds in which other programs have the CPUs show neither.
 */
static void polled(struct side *s, struct peer *p)
{
	int few = 0, asked = 0, rounds = 0, tries = 0;
	struct timespec start;
	struct ibv_wc wc;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (!few && rounds < 20 && since(&start) < 10) {
		int before, others;

		order(p, 'v');
		usleep(1000); /* it polls */
		others = spare_cpus() < 0;
		before = __atomic_load_n(&wakings, __ATOMIC_RELAXED);
		volley(s, true, VOLLEY);
		few = __atomic_load_n(&wakings, __ATOMIC_RELAXED) - before < VOLLEY / 50;
		rounds += !others;
		obeyed(p);
	}
	CHECK(few || rounds < 20);
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (asked < 5 && tries < 20 && since(&start) < 10) {
		int before, others;

		others = spare_cpus() < 1;
		CHECK(!done_within(s, &wc, 0.005));
		others |= spare_cpus() < 1;
		before = __atomic_load_n(&wakings, __ATOMIC_RELAXED);
		CHECK(!ibv_req_notify_cq(s->cq, 0));
		asked += __atomic_load_n(&wakings, __ATOMIC_RELAXED) - before;
		tries += !others;
	}
	CHECK(asked >= 5 || tries < 20);
	if (!few || asked < 5)
		printf("not judged: what wakes threads of programs that poll, since other programs have the CPUs\n");
	/* The next completion fires an event. */
	CHECK(execute(s, IBV_WR_RDMA_READ, 0, 8) == IBV_WC_SUCCESS);
	await_event(s);
}

static double used(void)
{
	struct rusage r;

	CHECK(!getrusage(RUSAGE_SELF, &r));
	return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void rest(struct side *s)
{
	CHECK(!ibv_req_notify_cq(s->cq, 0));
	usleep(200000);
}

static void post_extended(struct side *s)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(s->qp);

	ibv_wr_start(x);
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(x, s->peer.rkey, s->peer.at);
	ibv_wr_set_sge(x, s->mr->lkey, (uintptr_t)s->memory, 8);
	CHECK(!ibv_wr_complete(x));
}

static void fail(struct side *s)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE));
}

/* Devices that have nothing to do for long take little of a CPU. */
static void idle(void)
{
	double before;

	usleep(300000);
	before = used();
	sleep(1);
	CHECK(used() - before < 0.05);
}

/* They wake up for requests, for receives that end at once, and for what other processes do to them. */
static void woken(struct side *s, struct peer *p)
{
	enum { REQUEST, EXTENDED, RECEIVE, REFUSAL, CAUSES };
	int quick[CAUSES] = {};
	struct watch watch;

	for (int i = 0; i < 10 * CAUSES; i++) {
		int cause = i % CAUSES;

		if (quick[cause] == 5)
			continue;
		if (cause == RECEIVE)
			fail(s);
		if (cause == REFUSAL)
			order(p, 'e');
		rest(s);
		begin_watch(&watch);
		switch (cause) {
		case REQUEST: post(s, IBV_WR_RDMA_READ, 0, 8, 0); break;
		case EXTENDED: post_extended(s); break;
		case RECEIVE: receive(s); break;
		case REFUSAL: post(s, IBV_WR_RDMA_READ, BYTES - 7, 8, 0); break;
		}
		await_event(s);
		if (cause == REFUSAL)
			obeyed(p);
		quick[cause] += was_quick(&watch);
		CHECK(done(s) == (cause == REFUSAL ? IBV_WC_REM_ACCESS_ERR : cause == RECEIVE ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS));
		if (cause == RECEIVE || cause == REFUSAL)
			pair(s, p);
	}
	for (int i = 0; i < CAUSES; i++)
		CHECK(quick[i] == 5 || !fprintf(stderr, "cause %d: %d\n", i, quick[i]));
}

/* The file of the fabric's impairments. */
static void rules(char *path, size_t n)
{
	const char *folder = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";

	snprintf(path, n, "%s/simhca-fabric-%d/%s.impair", folder, (int)geteuid(), strchr(getenv("SIMHCA"), '@') + 1);
}

/* Nothing passes a rule that is older than the 5 ms after which devices look, even if they have rested. */
static void ruled(struct side *s)
{
	char file[200], new[220];
	struct ibv_wc wc;

	rules(file, sizeof(file));
	snprintf(new, sizeof(new), "%s.new", file);
	for (int i = 0; i < 10; i++) {
		FILE *f = fopen(new, "w");

		CHECK(f && fputs("* * cut\n", f) >= 0 && !fclose(f));
		usleep(200000);
		CHECK(!rename(new, file));
		usleep(6000);
		post(s, IBV_WR_RDMA_READ, 0, 8, 0);
		CHECK(!done_within(s, &wc, 0.001));
		CHECK(!unlink(file));
		CHECK(done(s) == IBV_WC_SUCCESS);
	}
}

/* Requests whose packets are late, slow and lost are carried out all the same, and once. */
static void impaired(struct side *s)
{
	char path[200];
	FILE *f;

	rules(path, sizeof(path));
	CHECK(f = fopen(path, "w"));
	CHECK(fprintf(f, "* * delay=50us rate=10Gbit loss=2%%\n") > 0 && !fclose(f));
	usleep(50000);
	one_sided(s);
	CHECK(!unlink(path));
	usleep(50000);
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
	polled(&s, &p);
	idle();
	woken(&s, &p);
	ruled(&s);
	impaired(&s);
	stopped(&s, &p);
	abandoned(&s, &p);
	refused(&s, &p);
	deregistered(&s, &p);
	end_peer(&p);
	start(&p, argv[0]);
	pair(&s, &p);
	order(&p, 'U');
	obeyed(&p);
	end_peer(&p);
	added(&s, argv[0]);
	soon(&s, argv[0]);
	start(&p, argv[0]);
	pair(&s, &p);
	order(&p, 'F');
	obeyed(&p);
	end_peer(&p);
	start(&p, argv[0]);
	killed(&s, &p);
	many(&s, argv[0]);
	return 0;
}
